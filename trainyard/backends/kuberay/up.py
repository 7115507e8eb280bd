"""The steps that make a RayCluster match its file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from trainyard.backends import replace_head
from trainyard.backends.contract import Tools
from trainyard.backends.kuberay import location, objects, preflight, ray_cluster, wait
from trainyard.backends.kuberay.documents.change import Change
from trainyard.backends.kuberay.documents.document import printable
from trainyard.backends.kuberay.errands import trial
from trainyard.backends.kuberay.operators import operator_steps
from trainyard.backends.kuberay.removing import removal
from trainyard.backends.kuberay.wanted import Wanted, lacks_definitions, wanted
from trainyard.seams.kube.types import Object
from trainyard.spec.cluster import ClusterSpec
from trainyard.steps import YES, Answer, Stage, Step, no


def up_steps(spec: ClusterSpec, tools: Tools) -> list[Stage]:
    """Return the steps that make the cluster match its file; which those are, Kubernetes and the registry say."""
    return [Stage("Ask Kubernetes and the registry", lambda: _steps(wanted(spec, tools)))]


def documents(spec: ClusterSpec, tools: Tools) -> list[Object]:
    """Return what Kubernetes would get, but for Secrets. Raises what `up_steps` does."""
    asked = wanted(spec, tools)
    return printable(replace(asked.documents, ray_cluster=ray_cluster.document(asked)))


def _steps(asked: Wanted) -> list[Step]:
    changes = ray_cluster.differences(asked)
    refused = ray_cluster.refusal(asked, changes)
    return [
        *([replace_head.step(refused, title="Make the whole cluster anew")] if refused else []),
        *preflight.steps(asked),
        Step("Write down where the cluster is", done=lambda: _is_recorded(asked), do=lambda: _record(asked)),
        *_kuberay(asked),
        *_objects(asked),
        *_nodes(asked, () if refused else changes, anew=asked.tools.recreate or refused is not None),
    ]


def _kuberay(asked: Wanted) -> list[Step]:
    """Return the steps that bring KubeRay, or see that the one that is there runs."""
    kuberay, namespace = asked.kuberay, asked.site.namespace
    steps = []
    if kuberay.plan.changes or lacks_definitions(asked.there):
        steps.append(operator_steps.definitions_step(kuberay))
    if kuberay.plan.what != "hidden":
        after = steps[0].title if steps else None
        steps.append(operator_steps.operator_step(kuberay, namespace, after=after))
    return steps


def _objects(asked: Wanted) -> list[Step]:
    """Return the steps that make what stands beside the RayCluster."""
    own, document = asked.site, asked.documents
    login = None
    if not asked.chosen.kept:
        login = objects.pull_step(asked.spec, own, asked.image) or objects.no_login_step(own)
    return [
        objects.namespace_step(own, document.namespace),
        *([login] if login else []),
        objects.token_step(own),
        *([objects.claim_step(own, document.claim)] if document.claim else []),
    ]


def _nodes(asked: Wanted, changes: Sequence[Change], *, anew: bool) -> list[Step]:
    """Return the steps that make the nodes, and wait for them."""
    own = asked.site
    gone = removal.step(own, asked.there, recreate=anew)
    make = ray_cluster.step(asked, changes, after=gone.title if gone else None)
    return [
        *trial.steps(asked, after=None),
        *([gone] if gone else []),
        make,
        wait.step(own, len(asked.spec.nodes()), after=make.title),
    ]


def _is_recorded(asked: Wanted) -> Answer:
    desired = location.record_of(asked.tools, asked.site)
    return YES if location.read(asked.tools) == desired else no("nothing is written down, or another location")


def _record(asked: Wanted) -> None:
    location.write(asked.tools, asked.site)
