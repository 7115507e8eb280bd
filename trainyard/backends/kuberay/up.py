"""The steps that make a RayCluster match its file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from trainyard.backends import replace_head
from trainyard.backends.contract import Tools
from trainyard.backends.kuberay import desired as reading
from trainyard.backends.kuberay import location, objects, operator, preflight, ray_cluster, wait
from trainyard.backends.kuberay.changes import Change
from trainyard.backends.kuberay.desired import Desired
from trainyard.backends.kuberay.manifest.documents import printable
from trainyard.seams.kube.types import Object
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.kubernetes import KuberaySection
from trainyard.steps import YES, Answer, Stage, Step, no


def up_steps(spec: ClusterSpec, tools: Tools, section: KuberaySection) -> list[Stage]:
    """Return the steps that make the cluster match its file; which those are, Kubernetes and the registry say."""
    return [Stage("Ask Kubernetes and the registry", lambda: _steps(reading.read(spec, tools, section)))]


def documents(spec: ClusterSpec, tools: Tools, section: KuberaySection) -> list[Object]:
    """Return what Kubernetes would get, but for Secrets. Raises what the steps do."""
    desired = reading.read(spec, tools, section)
    return printable(replace(desired.documents, ray_cluster=ray_cluster.document(desired)))


def _steps(desired: Desired) -> list[Step]:
    changes = ray_cluster.differences(desired)
    refused = ray_cluster.refusal(desired, changes)
    if refused:
        # What follows is shown as it would be with --recreate, which nothing that never ran needs.
        desired, changes = replace(desired, tools=replace(desired.tools, recreate=True)), ()
    refused = None if desired.never_started else refused
    return [
        *([replace_head.step(refused, title="Make the whole cluster anew")] if refused else []),
        *preflight.steps(desired),
        Step("Write down where the cluster is", lambda: _is_recorded(desired), lambda: _record(desired)),
        *operator.steps(desired.kuberay),
        *_objects(desired),
        *_nodes(desired, changes),
    ]


def _objects(desired: Desired) -> list[Step]:
    """Return the steps that make what stands beside the RayCluster."""
    where, documents = desired.location, desired.documents
    steps = [objects.namespace_step(where, documents.namespace)]
    if desired.pull_secret:
        steps.append(objects.login_step(where, desired.pull_secret))
    elif desired.takes_login_back:
        steps.append(objects.no_login_step(where))
    steps.append(objects.token_step(where))
    return [*steps, objects.claim_step(where, documents.claim)] if documents.claim else steps


def _nodes(desired: Desired, changes: Sequence[Change]) -> list[Step]:
    """Return the steps that make the nodes, and wait for them."""
    gone = ray_cluster.replace_step(desired)
    make = ray_cluster.step(desired, changes, after=gone.title if gone else None)
    return [*([gone] if gone else []), make, wait.step(desired.location, len(desired.spec.nodes()), after=make.title)]


def _is_recorded(desired: Desired) -> Answer:
    record = location.record_of(desired.tools, desired.location)
    return YES if location.read(desired.tools) == record else no("nothing is written down, or another location")


def _record(desired: Desired) -> None:
    location.write(desired.tools, desired.location)
