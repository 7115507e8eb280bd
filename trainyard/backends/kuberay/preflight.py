"""Before anything is made: what the user may do, what the file names, and room for every node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from trainyard.backends.kuberay import access, location, names, objects, pods, ray_cluster, references
from trainyard.backends.kuberay.capacity import demands, hosts, quota, room
from trainyard.backends.kuberay.capacity.amounts import Amounts, amounts
from trainyard.backends.kuberay.capacity.demands import Demand
from trainyard.backends.kuberay.capacity.hosts import Host
from trainyard.backends.kuberay.errands import errand_pod
from trainyard.backends.kuberay.there import seen
from trainyard.backends.kuberay.wanted import Wanted, pull_secrets_of
from trainyard.backends.wording import counted
from trainyard.errors import PrerequisiteError, RequestError
from trainyard.seams.kube.types import LIMIT_RANGE, NODE, POD, QUOTA, RUNTIME_CLASS, Object
from trainyard.spec.cluster import ClusterSpec
from trainyard.steps import YES, Answer, Step

# kubernetes.io/docs/concepts/security/pod-security-standards
ENFORCED = "pod-security.kubernetes.io/enforce"


def steps(asked: Wanted) -> list[Step]:
    """Return the steps that only ask; each holds, or raises what stands in the way."""
    return [
        Step("Check access to Kubernetes", done=lambda: _access(asked), do=_nothing),
        Step("Check what the file names on Kubernetes", done=lambda: _references(asked), do=_nothing),
        Step(f"Check the room for {counted(len(asked.spec.nodes()), 'node')}", done=lambda: _room(asked), do=_nothing),
    ]


def to_place(asked: Wanted) -> dict[str, int]:
    """Return how many nodes of each group have no pod on a Kubernetes node yet."""
    wanted: dict[str, int] = {}
    for node in asked.spec.nodes():
        wanted[node.group] = wanted.get(node.group, 0) + 1
    for one in kept(asked):
        wanted[pods.group(one)] = wanted.get(pods.group(one), 0) - 1
    return {group: count for group, count in wanted.items() if count > 0}


def kept(asked: Wanted) -> list[Object]:
    """Return the cluster's own pods that have a place and keep it."""
    if asked.is_new:
        return []
    return [one for one in asked.there.pods.found or () if pods.host(one) and not pods.is_leaving(one) and _runs(one)]


def refuse_security(namespace: Object | None, spec: ClusterSpec) -> None:
    """Raise RequestError if the namespace's Pod Security Standard would refuse the pods."""
    level = ((namespace or {}).get("metadata", {}).get("labels") or {}).get(ENFORCED, "privileged")
    section = spec.kuberay
    problem = ""
    if level == "restricted" and not section.security.restricted:
        problem = "it takes only pods that give up every privilege"
    if level != "privileged" and any(volume.host_path for volume in section.volumes):
        problem = "it takes no pods with a directory of their host (kuberay.volumes: host_path)"
    if problem:
        raise RequestError(
            f"namespace {section.namespace} would refuse the nodes: {problem}",
            where=f"its label {ENFORCED}={level}",
            hint="Write `kuberay: {security: {restricted: true}}`; the image must not need root then."
            if "host_path" not in problem
            else "Use a claim, or another namespace.",
        )


def _nothing() -> None:
    """Change nothing: these steps only ask."""


def _access(asked: Wanted) -> Answer:
    claim, has_login = asked.documents.claim, names.pull_secret(asked.site.name) in pull_secrets_of(asked.documents)
    task = replace(
        asked.task(),
        grow=claim is not None and objects.has_smaller_claim(asked.site, claim),
        no_login=not asked.chosen.kept and not has_login and objects.has_login(asked.site),
    )
    needs = access.needs(asked.spec, task)
    access.refuse_missing(asked.site.kube, needs, command="cluster.up")
    return Answer(True, "; ".join(one for one in (_unknown(asked), asked.image.remark) if one))


def _unknown(asked: Wanted) -> str:
    """Say that a cluster was there of which nothing is written down here, "" if one is known, or none was there."""
    if asked.ray_cluster is None or location.read(asked.tools) is not None:
        return ""
    maker = ray_cluster.maker(asked.ray_cluster)
    return f"cluster {asked.site.name} was there already" + (f", made by {maker}" if maker else "")


def _references(asked: Wanted) -> Answer:
    if not to_place(asked):
        return YES
    refuse_security(asked.there.namespace.found, asked.spec)
    return Answer(True, "; ".join(references.refuse_missing(asked.site.kube, asked.spec)))


def _room(asked: Wanted) -> Answer:
    counts = to_place(asked)
    if not counts:
        return YES
    wanted = demands.demands(asked.documents.ray_cluster, counts, _overheads(asked))
    remarks = _refuse_over_quota(asked, wanted)
    there = _hosts(asked)
    if there is None:
        remarks.append("whether there is room was not checked: you may not see the Kubernetes nodes, or their pods")
        return Answer(True, "; ".join(remarks))
    found = room.shortage(wanted, there)
    if found.said and found.proven and asked.spec.kuberay.wait_for_machines is None:
        raise _refusal(asked, wanted, found.said, there)
    return Answer(True, "; ".join([*found.said, *remarks]))


def _refuse_over_quota(asked: Wanted, wanted: Sequence[Demand]) -> list[str]:
    """Raise PrerequisiteError with what the namespace's quotas and limits forbid; return what was not looked at."""
    if not asked.there.has_namespace:
        return []
    kube, namespace = asked.site.kube, asked.site.namespace
    quotas = seen(lambda: tuple(kube.list(QUOTA, namespace=namespace)))
    ranges = seen(lambda: tuple(kube.list(LIMIT_RANGE, namespace=namespace)))
    hidden = [name for name, one in (("quotas", quotas), ("limit ranges", ranges)) if one.refusal]
    remarks = [f"{' and '.join(hidden)} of the namespace were not checked"] if hidden else []
    stay = {pods.uid(one) for one in kept(asked)}
    gone = [one for one in asked.there.pods.found or () if pods.uid(one) not in stay]
    # What an `up` that was killed left behind goes before anything else is made.
    gone += seen(lambda: kube.list(POD, namespace=namespace, labels=errand_pod.of_any(asked.spec.name))).found or []
    found = quota.over_quota(quotas.found or (), wanted, gone=gone)
    found += quota.out_of_range(ranges.found or (), wanted)
    if found:
        listed = "".join(f"\n  - {one}" for one in found)
        raise PrerequisiteError(
            f"namespace {namespace} does not allow cluster {asked.spec.name}:{listed}",
            where=kube.place,
            hint=f"Want less, or have it raised: kubectl describe quota,limitrange -n {namespace}",
        )
    return remarks


def _hosts(asked: Wanted) -> tuple[Host, ...] | None:
    """Return the Kubernetes nodes, None if the user may not see them; pods of ours that go take nothing."""
    kube = asked.site.kube
    nodes, every = seen(lambda: tuple(kube.list(NODE))), seen(lambda: tuple(kube.list(POD)))
    if nodes.found is None or every.found is None:
        return None
    stay = {pods.uid(one) for one in kept(asked)}
    ours = {pods.uid(one) for one in asked.there.pods.found or ()}
    others = [one for one in every.found if pods.uid(one) in stay or pods.uid(one) not in ours]
    others = [one for one in others if not errand_pod.is_errand(one, asked.spec.name, asked.site.namespace)]
    return hosts.hosts(nodes.found, others, ours=stay)


def _overheads(asked: Wanted) -> dict[str, Amounts]:
    """Return what each runtime class adds to a pod; nothing where that may not be looked at."""

    def overhead(name: str) -> Amounts:
        runtime = seen(lambda: asked.site.kube.get(RUNTIME_CLASS, name)).found or {}
        return amounts((runtime.get("overhead") or {}).get("podFixed"))

    return {name: overhead(name) for name in references.runtime_classes(asked.spec).values()}


def _refusal(
    asked: Wanted, wanted: Sequence[Demand], problems: Sequence[str], there: Sequence[Host]
) -> PrerequisiteError:
    gpu = asked.spec.kuberay.gpu_resource
    wants_gpus = any(one.requests.get(gpu) for one in wanted)
    context = asked.site.kube.context
    hint = (
        f"Free it, or want less. Where Kubernetes adds machines by itself: `kuberay: {{wait_for_machines: 10m}}`. "
        f"All that was counted: kubectl describe nodes{f' --context {context}' if context else ''}"
    )
    if wants_gpus and not room.has_resource(there, gpu):
        hint = (
            f"No Kubernetes node offers {gpu}: is NVIDIA's device plugin there, and does it run? (MicroK8s: microk8s "
            "enable gpu; elsewhere the GPU operator.) To try the layout without GPUs: "
            "`kuberay: {simulated_gpus: true}`."
        )
    listed = "".join(f"\n  - {one}" for one in problems)
    return PrerequisiteError(
        f"there is no room on Kubernetes for cluster {asked.spec.name}:{listed}",
        where=asked.site.kube.place,
        hint=hint,
    )


def _runs(pod: Object) -> bool:
    return pods.phase(pod) in ("Pending", "Running")
