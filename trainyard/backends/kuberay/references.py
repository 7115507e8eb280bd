"""What the cluster file names and somebody else must have made: a claim, a runtime class, a Secret."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainyard.backends.kuberay.there import Seen, seen, side_by_side
from trainyard.errors import PrerequisiteError
from trainyard.seams.kube.api import Kube
from trainyard.seams.kube.types import (
    CLAIM,
    CONFIG_MAP,
    PRIORITY_CLASS,
    RUNTIME_CLASS,
    SECRET,
    SERVICE_ACCOUNT,
    STORAGE_CLASS,
    Kind,
    Object,
)
from trainyard.spec.cluster import ClusterSpec

# kubernetes.io/docs/concepts/storage/storage-classes, "Default StorageClass".
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"


@dataclass(frozen=True)
class Reference:
    """An object that a place of the file names."""

    place: str
    kind: Kind
    name: str


def references(spec: ClusterSpec) -> tuple[Reference, ...]:
    """Return what the file names, in its order."""
    return tuple(dict.fromkeys(_references(spec)))


def runtime_classes(spec: ClusterSpec) -> dict[str, str]:
    """Return the runtime class of each group with GPUs; others have none."""
    if spec.kuberay.simulated_gpus:
        return {}
    gpus = {"head": spec.head.gpus, **{group.name: group.gpus for group in spec.workers}}
    classes = {group: spec.kuberay.placement(group).runtime_class for group, count in gpus.items() if count}
    return {group: name for group, name in classes.items() if name}


def refuse_missing(kube: Kube, spec: ClusterSpec) -> list[str]:
    """Raise PrerequisiteError with everything that is not there; return what could not be looked at."""
    asked = references(spec)
    answers = side_by_side(lambda one: _ask(kube, one, spec.kuberay.namespace), asked)
    missing = [
        f"{one.place}: there is no {one.kind.name} called {one.name}"
        for one, answer in zip(asked, answers, strict=True)
        if answer.found is None and answer.refusal is None
    ]
    default, remarks = _default_class(kube, spec)
    missing += default
    remarks += [f"{one.place} was not checked" for one, answer in zip(asked, answers, strict=True) if answer.refusal]
    if missing:
        raise _error(missing, kube, spec)
    return remarks


def _error(missing: Sequence[str], kube: Kube, spec: ClusterSpec) -> PrerequisiteError:
    listed = "".join(f"\n  - {one}" for one in missing)
    return PrerequisiteError(
        f"Kubernetes does not have what the cluster file names:{listed}",
        where=f"namespace {spec.kuberay.namespace}, {kube.place}",
        hint="Have it made, or name what there is.",
    )


def _references(spec: ClusterSpec) -> Iterator[Reference]:
    section = spec.kuberay
    for group, name in runtime_classes(spec).items():
        own = group in section.groups and section.groups[group].runtime_class
        yield Reference(
            f"kuberay.groups.{group}.runtime_class" if own else "kuberay.runtime_class", RUNTIME_CLASS, name
        )
    for group in ("head", *(one.name for one in spec.workers)):
        own = group in section.groups and section.groups[group].priority_class
        place = f"kuberay.groups.{group}.priority_class" if own else "kuberay.priority_class"
        priority = section.placement(group).priority_class
        if priority:
            yield Reference(place, PRIORITY_CLASS, priority)
    for index, volume in enumerate(section.volumes):
        for word, kind in (("claim", CLAIM), ("config_map", CONFIG_MAP), ("secret", SECRET)):
            if getattr(volume, word):
                yield Reference(f"kuberay.volumes.{index}.{word}", kind, getattr(volume, word))
    if section.storage and section.storage.claim:
        yield Reference("kuberay.storage.claim", CLAIM, section.storage.claim)
    if section.storage and section.storage.storage_class:
        yield Reference("kuberay.storage.storage_class", STORAGE_CLASS, section.storage.storage_class)
    if section.service_account:
        yield Reference("kuberay.service_account", SERVICE_ACCOUNT, section.service_account)
    for index, name in enumerate(section.pull_secrets):
        yield Reference(f"kuberay.pull_secrets.{index}", SECRET, name)


def _ask(kube: Kube, one: Reference, namespace: str) -> Seen[Object]:
    return seen(lambda: kube.get(one.kind, one.name, namespace=namespace if one.kind.namespaced else None))


def _default_class(kube: Kube, spec: ClusterSpec) -> tuple[list[str], list[str]]:
    """Return what is wrong with the default storage class, and what could not be looked at, where one is needed."""
    storage = spec.kuberay.storage
    if storage is None or storage.size is None or storage.storage_class:
        return [], []
    classes = seen(lambda: tuple(kube.list(STORAGE_CLASS)))
    if classes.found is None:
        return [], ["the default storage class was not checked"]
    if any((one["metadata"].get("annotations") or {}).get(DEFAULT_CLASS) == "true" for one in classes.found):
        return [], []
    known = ", ".join(one["metadata"]["name"] for one in classes.found) or "none"
    return [f"kuberay.storage: there is no default storage class; name one (there are: {known})"], []
