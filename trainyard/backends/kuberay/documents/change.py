"""In what a RayCluster differs from the one that the cluster file now asks for, in the file's words; pure.

Judged by KubeRay 1.5 (ray-operator/controllers/ray/raycluster_controller.go, reconcilePods): on a running cluster it
carries out sizes of groups and new groups. What stands in the template of a pod counts only for pods that are made
later, and pods of a group that is gone stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainyard.backends.kuberay import names
from trainyard.backends.kuberay.documents import change_group
from trainyard.backends.kuberay.documents.change_group import Difference
from trainyard.backends.kuberay.pods import quantity
from trainyard.seams.kube.types import Object
from trainyard.spec.units import format_duration, format_size

_OTHER = "something that Trainyard sets itself: it was made by another version"


@dataclass(frozen=True)
class Change:
    """One difference. `applied`: KubeRay carries it out on a running cluster. `group`: whose nodes alone it is about.

    `old` and `new` are None where a value is absent, or not shown; `said` says it as a whole then.
    """

    path: str
    old: str | None = None
    new: str | None = None
    said: str = ""
    applied: bool = False
    group: str | None = None

    @property
    def ends_nodes(self) -> bool:
        """Say whether KubeRay ends nodes for it: the group gets smaller."""
        if not self.path.endswith((".count", ".max")) or self.new is None:
            return False
        return self.old is None or not self.old.isdecimal() or int(self.old) > int(self.new)

    def __str__(self) -> str:
        """Return it as people read it."""
        return self.said or f"{self.path}: {self.old or 'none'} now, {self.new or 'none'} wanted"


def differences(live: Object, wanted: Object) -> tuple[Change, ...]:
    """Return every difference; `wanted` is what the API server would make of what we send: a dry run.

    How many nodes a growing group has right now is the autoscaler's business, and no difference.
    """
    found = [*_whole(live, wanted), *_sizes(live, wanted), *_nodes(live, wanted)]
    if all(one.applied for one in found) and _rest(live, wanted) != _rest(wanted, live):
        found.append(Change("", said=_OTHER))
    return tuple(found)


def carried(wanted: Object, live: Object) -> Object:
    """Return what to send over a live RayCluster: who made it, and what Ray decided about groups, stay.

    The groups are one list to the API server (the CRD names no key): whoever sends it, sends all of it.
    """
    maker = (live["metadata"].get("annotations") or {}).get(names.MAKER)
    if maker:
        wanted = annotated(wanted, {names.MAKER: maker})
    there = _groups(live)
    groups = [{**group, **_decided(group, there.get(group["groupName"]))} for group in _groups(wanted).values()]
    if not groups:
        return wanted
    return {**wanted, "spec": {**wanted["spec"], "workerGroupSpecs": groups}}


def annotated(wanted: Object, annotations: Mapping[str, str]) -> Object:
    """Return an object with more annotations."""
    metadata = wanted["metadata"]
    return {**wanted, "metadata": {**metadata, "annotations": {**(metadata.get("annotations") or {}), **annotations}}}


def claim_differences(live: Object, wanted: Object) -> tuple[Change, ...]:
    """Return in what the claim behind `outputs` differs; only its size can ever change, and only grow."""
    old, new = live["spec"], wanted["spec"]
    found = []
    sizes = [quantity(str(one["resources"]["requests"]["storage"])) for one in (old, new)]
    if sizes[0] != sizes[1]:
        was, wants = (format_size(int(size)) for size in sizes)
        found.append(Change("kuberay.storage.size", was, wants, applied=sizes[1] > sizes[0]))
    if old["accessModes"] != new["accessModes"]:
        found.append(Change("kuberay.storage.access", old["accessModes"][0], new["accessModes"][0]))
    # Left out, it is the default one: the API server has written it down.
    wants_class = new.get("storageClassName")
    if wants_class is not None and old.get("storageClassName") != wants_class:
        found.append(Change("kuberay.storage.storage_class", old.get("storageClassName"), wants_class))
    return tuple(found)


def _decided(group: Mapping[str, Any], live: Mapping[str, Any] | None) -> dict[str, Any]:
    if live is None or "replicas" in group:
        return {}
    now = min(max(live.get("replicas") or 0, group["minReplicas"]), group["maxReplicas"])
    strategy = live.get("scaleStrategy")
    return {"replicas": now, **({"scaleStrategy": strategy} if strategy else {})}


def _whole(live: Object, wanted: Object) -> Iterator[Change]:
    old, new = live["spec"], wanted["spec"]
    was, wants = ((one.get("authOptions") or {}).get("mode", "disabled") for one in (old, new))
    if was != wants:
        yield Change("auth", was, wants)
    simulated = [(one["metadata"].get("annotations") or {}).get(names.SIMULATED) for one in (live, wanted)]
    if simulated[0] != simulated[1]:
        yield Change("kuberay.simulated_gpus", simulated[0], simulated[1])
    grew, grows = (bool(one.get("enableInTreeAutoscaling")) for one in (old, new))
    if grows and not grew:
        yield Change("workers", said="workers: a group that grows needs an autoscaler, and the head has none")
    if grew and not grows:
        yield Change("workers", said="workers: no group grows any more, and the head still has an autoscaler")


def _sizes(live: Object, wanted: Object) -> Iterator[Change]:
    old, new = _groups(live), _groups(wanted)
    for name in [name for name in new if name not in old]:
        yield Change(f"workers.{name}", said=f"workers.{name} is new", applied=True, group=name)
    for name in [name for name in old if name not in new]:
        yield Change(f"workers.{name}", said=f"workers.{name} is gone", group=name)
    for name in [name for name in new if name in old]:
        yield from _size(name, old[name], new[name])


def _size(name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    least, most = ([one.get(key) for one in (old, new)] for key in ("minReplicas", "maxReplicas"))
    path = f"workers.{name}"
    if least == most:
        if least[0] != least[1]:
            yield Change(f"{path}.count", str(least[0]), str(least[1]), applied=True, group=name)
        elif old.get("replicas") != new.get("replicas") and "replicas" in new:
            yield Change(f"{path}.count", str(old.get("replicas")), str(new["replicas"]), applied=True, group=name)
    else:
        for word, (was, wants) in (("min", least), ("max", most)):
            if was != wants:
                yield Change(f"{path}.{word}", str(was), str(wants), applied=True, group=name)
    idle = [one.get("idleTimeoutSeconds") for one in (old, new)]
    if idle[0] != idle[1]:
        was, wants = (format_duration(one) if one is not None else None for one in idle)
        yield Change(f"{path}.idle_timeout", was, wants, applied=True, group=name)


def _nodes(live: Object, wanted: Object) -> Iterator[Change]:
    """Yield in what the nodes themselves differ; what is the same in every group is said once."""
    old, new = change_group.nodes(live), change_group.nodes(wanted)
    common = [group for group in new if group in old]
    found: dict[Difference, list[str]] = {}
    for group in common:
        for difference in change_group.differences(old[group], new[group]):
            found.setdefault(difference, []).append(group)
    for difference, groups in found.items():
        if len(groups) == len(common) and difference.is_shared:
            yield _change(difference, difference.path, None)
        else:
            yield from (_change(difference, _path(difference, group), group) for group in groups)


def _change(difference: Difference, path: str, group: str | None) -> Change:
    if difference.verb:
        of = f" of {group}" if group and path == difference.path else ""
        return Change(path, said=f"{path} is {difference.verb}{of}", group=group)
    return Change(path, difference.old, difference.new, group=group)


def _path(difference: Difference, group: str) -> str:
    """Return the path of what only some groups have otherwise."""
    if not difference.is_shared:
        place = "head" if group == "head" else f"workers.{group}"
        return f"{place}.{difference.path}"
    section, _, key = difference.path.partition(".")
    if section == "kuberay" and key in change_group.PLACEMENT:
        return f"kuberay.groups.{group}.{key}"
    return difference.path


def _groups(ray_cluster: Object) -> dict[str, dict[str, Any]]:
    return {str(group["groupName"]): group for group in ray_cluster["spec"].get("workerGroupSpecs") or ()}


def _rest(ray_cluster: Object, other: Object) -> Object:
    """Return what we send besides sizes, of the groups that both have."""
    both = _groups(ray_cluster).keys() & _groups(other).keys()
    groups = {
        name: {key: group.get(key) for key in ("labels", "rayStartParams", "template")}
        for name, group in _groups(ray_cluster).items()
        if name in both
    }
    spec = {key: value for key, value in ray_cluster["spec"].items() if key != "workerGroupSpecs"}
    return {**spec, "workerGroupSpecs": groups}
