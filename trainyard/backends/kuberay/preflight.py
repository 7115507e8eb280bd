"""Before anything is made: what the user may do, what the file names, and whether the nodes can be had at all.

What is free right now, Kubernetes' own scheduler and quotas say best; here is only asked what can never be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from trainyard.backends.kuberay import location, naming, pods
from trainyard.backends.kuberay.desired import Desired
from trainyard.backends.kuberay.diagnosis.operator import explain_admission
from trainyard.backends.kuberay.location import Location
from trainyard.backends.kuberay.manifest import groups
from trainyard.backends.kuberay.snapshot import if_allowed, side_by_side
from trainyard.backends.wording import counted
from trainyard.errors import PrerequisiteError
from trainyard.seams.kube import types as kinds
from trainyard.seams.kube.api import Kube
from trainyard.seams.kube.errors import InvalidError, KubeError
from trainyard.seams.kube.types import Kind, Object
from trainyard.spec.units import format_size
from trainyard.steps import YES, Answer, Step

_REVIEW = Kind("authentication.k8s.io/v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False)
# Verbs by kind, and by part of it. A port-forward is a WebSocket, which is a GET; Kubernetes 1.35 wants `create` as
# well. An apply is a PATCH.
RIGHTS: dict[str, Sequence[tuple[str, Kind, str]]] = {
    "cluster": (
        ("get create patch", kinds.RAY_CLUSTER, ""),
        ("get create", kinds.SECRET, ""),
        ("list", kinds.POD, ""),
        ("get create", kinds.POD, "portforward"),
        ("get", kinds.POD, "log"),
    ),
    "claim": (("get create", kinds.CLAIM, ""),),
    "login": (("patch", kinds.SECRET, ""),),
    "no login": (("delete", kinds.SECRET, ""),),
    "remove": (("delete", kinds.RAY_CLUSTER, ""),),
    "namespace": (("create", kinds.NAMESPACE, ""),),
    "crds": (("get create patch", kinds.CRD, ""),),
    # What Helm needs for the chart of the operator (helm-chart/kuberay-operator/templates), and for its release.
    "operator": (
        *(("get create patch", kind, "") for kind in (kinds.CLUSTER_ROLE, kinds.CLUSTER_ROLE_BINDING)),
        *(
            ("get create patch", kind, "")
            for kind in (kinds.DEPLOYMENT, kinds.SERVICE, kinds.SERVICE_ACCOUNT, kinds.ROLE, kinds.ROLE_BINDING)
        ),
        ("list create update", kinds.SECRET, ""),
    ),
}
# kubernetes.io/docs/concepts/storage/storage-classes, "Default StorageClass".
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"


@dataclass(frozen=True)
class Right:
    """Something that must be allowed; no namespace: everywhere. `part` is one of an object, such as `log`."""

    verb: str
    kind: Kind
    namespace: str | None
    part: str = ""

    def __str__(self) -> str:
        what = ".".join(filter(None, (self.kind.plural, self.kind.group))) + (f"/{self.part}" if self.part else "")
        where = f"in namespace {self.namespace}" if self.namespace else "in the whole of Kubernetes"
        return f"{self.verb} {what} {where}"


def refuse_missing(location: Location, steps: Iterable[str]) -> None:
    """Raise PrerequisiteError with all that the user may not do of what these steps need."""
    kube = location.kube
    rights = [right for step in steps for right in _of_step(step, location)]
    allowed = side_by_side(
        lambda right: kube.may(right.verb, right.kind, namespace=right.namespace, subresource=right.part), rights
    )
    missing = [right for right, is_allowed in zip(rights, allowed, strict=True) if not is_allowed]
    if not missing:
        return
    listed = "".join(f"\n  - {right}" for right in missing)
    raise PrerequisiteError(
        f"{user(kube)} may not do {counted(len(missing), 'thing')} that cluster.up needs:{listed}",
        where=f"context {kube.context} ({kube.server})" if kube.context else kube.server,
        hint="Ask whoever runs that Kubernetes for these rights, or name another context: kuberay.context.",
    )


def user(kube: Kube) -> str:
    """Return the name that the API server knows the user by; a kubeconfig has only one of its own."""
    try:
        answer = kube.create(_REVIEW, {"apiVersion": _REVIEW.api, "kind": _REVIEW.name})
    except (KubeError, PrerequisiteError):
        # Before Kubernetes 1.28 nobody could ask that.
        return kube.user or "this user"
    name = ((answer.get("status") or {}).get("userInfo") or {}).get("username")
    return str(name or kube.user or "this user")


def _of_step(step: str, location: Location) -> list[Right]:
    namespace = location.section.operator.namespace if step == "operator" else location.namespace
    return [
        Right(verb, kind, namespace if kind.namespaced else None, part)
        for verbs, kind, part in RIGHTS[step]
        for verb in verbs.split()
    ]


def steps(desired: Desired) -> list[Step]:
    """Return the steps that only ask; each holds, or raises what stands in the way."""
    count = counted(len(desired.spec.nodes()), "node")

    def step(title: str, ask: Callable[[Desired], Answer]) -> Step:
        return Step(title, done=lambda: ask(desired), do=lambda: None)

    return [
        step("Check access to Kubernetes", _access),
        step("Check what the file names on Kubernetes", _references),
        step(f"Check the room for {count}", _room),
    ]


def _access(desired: Desired) -> Answer:
    kuberay, storage = desired.kuberay, desired.location.section.storage
    needed = {
        "cluster": True,
        "claim": bool(storage and storage.size),
        "login": desired.pull_secret is not None,
        "no login": desired.takes_login_back,
        "remove": desired.is_new and desired.live is not None,
        "namespace": not desired.has_namespace,
        "crds": not kuberay.serves,
        "operator": kuberay.must_install,
    }
    refuse_missing(desired.location, [step for step, is_needed in needed.items() if is_needed])
    return Answer(True, "; ".join(filter(None, (_known_to_others(desired), desired.image.remark))))


def _known_to_others(desired: Desired) -> str:
    """Say that a cluster was there of which nothing is written down here, "" if one is known, or none was there."""
    if desired.live is None or location.read(desired.tools) is not None:
        return ""
    maker = (desired.live["metadata"].get("annotations") or {}).get(naming.MAKER)
    return f"cluster {desired.spec.name} was there already" + (f", made by {maker}" if maker else "")


def _references(desired: Desired) -> Answer:
    """Ask for everything that somebody else must have made, and let Kubernetes judge a pod of each group."""
    if not desired.is_new:
        return YES
    where = desired.location
    missing, unchecked = _missing(where)
    if missing:
        listed = "".join(f"\n  - {text}" for text in missing)
        raise PrerequisiteError(
            f"Kubernetes does not have what the cluster file names:{listed}",
            where=f"namespace {where.namespace}, {where.kube.place}",
            hint="Have it made, or name what there is.",
        )
    if desired.has_namespace:
        unchecked += _refuse_not_admitted(desired)
    return Answer(True, "; ".join(unchecked))


def _missing(where: Location) -> tuple[list[str], list[str]]:
    """Return what is missing of what the file names, and what could not be looked at."""
    named = list(_named(where.section))

    def ask(reference: tuple[str, Kind, str]) -> Any:
        _, kind, name = reference
        return if_allowed(lambda: where.kube.get(kind, name, namespace=where.namespace if kind.namespaced else None))

    missing, unchecked = [], []
    for (key, kind, name), reply in zip(named, side_by_side(ask, named), strict=True):
        if reply.refusal:
            unchecked.append(f"{key} was not checked")
        elif reply.found is None:
            missing.append(f"{key}: there is no {kind.name} called {name}")
    storage = where.section.storage
    if storage and storage.size and not storage.storage_class:
        classes = if_allowed(lambda: tuple(where.kube.list(kinds.STORAGE_CLASS)))
        if classes.found is None:
            unchecked.append("the default storage class was not checked")
        elif not any(
            (each["metadata"].get("annotations") or {}).get(DEFAULT_CLASS) == "true" for each in classes.found
        ):
            known = ", ".join(each["metadata"]["name"] for each in classes.found) or "none"
            missing.append(f"kuberay.storage: there is no default storage class; name one (there are: {known})")
    return missing, unchecked


def _named(section: Any) -> Iterator[tuple[str, Kind, str]]:
    """Yield the key, the kind and the name of what only starting pods would miss; admission says the rest."""
    for index, volume in enumerate(section.volumes):
        for key, kind in (("claim", kinds.CLAIM), ("config_map", kinds.CONFIG_MAP), ("secret", kinds.SECRET)):
            if getattr(volume, key):
                yield f"kuberay.volumes.{index}.{key}", kind, getattr(volume, key)
    if section.storage and section.storage.claim:
        yield "kuberay.storage.claim", kinds.CLAIM, section.storage.claim
    if section.storage and section.storage.storage_class:
        yield "kuberay.storage.storage_class", kinds.STORAGE_CLASS, section.storage.storage_class
    for index, name in enumerate(section.pull_secrets):
        yield f"kuberay.pull_secrets.{index}", kinds.SECRET, name


def _refuse_not_admitted(desired: Desired) -> list[str]:
    """Raise what quotas, limits, Pod Security, or missing classes and accounts stand against a pod of some group.

    A dry run goes through all of admission and leaves nothing (kubernetes.io, "API concepts", dry-run).
    """
    where = desired.location
    for group, template in _groups(desired.documents.ray_cluster).items():
        metadata = {**(template["template"].get("metadata") or {}), "name": f"{where.name}-{group}-dry-run"}
        pod = {"apiVersion": kinds.POD.api, "kind": kinds.POD.name, **template["template"], "metadata": metadata}
        try:
            reply = if_allowed(partial(where.kube.create, kinds.POD, pod, namespace=where.namespace, dry_run=True))
        except InvalidError as error:
            found = explain_admission(error.what, what="the head" if group == "head" else f"a node of {group}")
            raise PrerequisiteError(found.message, where=str(where), hint=found.hint) from error
        if reply.refusal:
            return ["quota, limits and Pod Security of the namespace were not checked"]
    return []


def _room(desired: Desired) -> Answer:
    """Ask whether any host is large enough for each node, and whether the hosts offer GPUs enough, busy or not."""
    spec, where = desired.spec, desired.location
    placed = [pod for pod in desired.pods if pods.host(pod) and not desired.is_new]
    if len(placed) >= len(spec.nodes()):
        return YES
    hosts = if_allowed(lambda: where.kube.list(kinds.NODE)).found
    if hosts is None:
        return Answer(True, "whether there is room was not checked: you may not see the Kubernetes nodes")
    offers = [_offer(host) for host in hosts if not (host.get("spec") or {}).get("unschedulable")]
    problems = list(dict.fromkeys(_problems(desired, offers)))
    if not problems or where.section.wait_for_machines is not None:
        return Answer(True, "; ".join(problems))
    gpu = where.section.gpu_resource
    hint = "Want less. Where Kubernetes adds machines by itself: `kuberay: {wait_for_machines: 10m}`."
    if any(f"offers {gpu}" in problem for problem in problems):
        hint = (
            "Is NVIDIA's device plugin there, and does it run? (MicroK8s: microk8s enable gpu; elsewhere the GPU "
            "operator.) To try the layout without GPUs: `kuberay: {simulated_gpus: true}`."
        )
    listed = "".join(f"\n  - {problem}" for problem in problems)
    raise PrerequisiteError(
        f"there is no room on Kubernetes for cluster {spec.name}:{listed}", where=where.kube.place, hint=hint
    )


def _problems(desired: Desired, offers: list[dict[str, float]]) -> Iterator[str]:
    gpu = desired.location.section.gpu_resource
    wanted = {name: _requests(group) for name, group in _groups(desired.documents.ray_cluster).items()}
    counts = [node.group for node in desired.spec.nodes()]
    for group in dict.fromkeys(counts):
        for resource, amount in wanted[group].items():
            most = max((offer.get(resource, 0) for offer in offers), default=0)
            if resource == gpu and not most:
                yield f"{group}: no Kubernetes node offers {gpu}"
            elif most < amount:
                shown = f"{_shown(resource, amount)} wanted, at most {_shown(resource, most)} on a host"
                yield f"{group}: no Kubernetes node is large enough: {resource}: {shown}"
    total = sum(wanted[group].get(gpu, 0) for group in counts)
    offered = sum(offer.get(gpu, 0) for offer in offers)
    if 0 < offered < total:
        yield f"{gpu}: {total:g} wanted, {offered:g} on all Kubernetes nodes together"


def _groups(ray_cluster: Object) -> dict[str, Object]:
    return {"head": ray_cluster["spec"]["headGroupSpec"], **groups(ray_cluster)}


def _requests(group: Object) -> dict[str, float]:
    resources = group["template"]["spec"]["containers"][0]["resources"]
    return {name: pods.quantity(str(amount)) for name, amount in resources["requests"].items()}


def _offer(host: Object) -> dict[str, float]:
    found = (host.get("status") or {}).get("allocatable") or {}
    return {name: pods.quantity(str(amount)) for name, amount in found.items()}


def _shown(resource: str, amount: float) -> str:
    return format_size(int(amount)) if resource == "memory" else f"{amount:g}"
