"""In what the nodes of a group differ from those that the cluster file now asks for; pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainyard.backends import ray_nodes
from trainyard.backends.kuberay import names
from trainyard.backends.kuberay.documents.pod_parts import SESSIONS
from trainyard.backends.kuberay.pods import quantity
from trainyard.seams.kube.types import Object
from trainyard.spec.units import format_size

# Keys of the section that `kuberay.groups` may say for one group.
PLACEMENT = ("node_selector", "tolerations", "spread", "runtime_class", "priority_class")
_OWN_VOLUMES = ("shared-mem", "ray-logs", "home", "outputs")
_OF_UNKNOWN_USERS = ("HOME", "USER", "LOGNAME")


@dataclass(frozen=True)
class Difference:
    """One difference of a group. `is_shared`: the file says it for all groups. `verb` instead of values: "another"."""

    path: str
    old: str | None = None
    new: str | None = None
    verb: str = ""
    is_shared: bool = True


@dataclass(frozen=True)
class Side:
    """A group's nodes as one RayCluster has them."""

    start: Mapping[str, str]
    metadata: Mapping[str, Any]
    pod: Mapping[str, Any]

    @property
    def container(self) -> Mapping[str, Any]:
        """Return the container that Ray runs in: the first one."""
        found: Mapping[str, Any] = self.pod["containers"][0]
        return found

    @property
    def limits(self) -> dict[str, Any]:
        """Return what a node may use."""
        return dict((self.container.get("resources") or {}).get("limits") or {})

    @property
    def gpu_resource(self) -> str | None:
        """Return what a GPU is called, None if Kubernetes is not asked for any."""
        return next((name for name in self.limits if name not in ("cpu", "memory")), None)


def nodes(ray_cluster: Object) -> dict[str, Side]:
    """Return the nodes of each group, the head first."""
    spec = ray_cluster["spec"]
    workers = {str(group["groupName"]): _side(group) for group in spec.get("workerGroupSpecs") or ()}
    return {"head": _side(spec["headGroupSpec"]), **workers}


def differences(old: Side, new: Side) -> Iterator[Difference]:
    """Yield in what nodes differ, in the words of the cluster file, without what only follows from that."""
    yield from _node(old, new)
    yield from _variables(old, new)
    yield from _section(old, new)
    yield from _entries(old, new)


def _side(group: Mapping[str, Any]) -> Side:
    template = group["template"]
    return Side(group.get("rayStartParams") or {}, template.get("metadata") or {}, template["spec"])


def _node(old: Side, new: Side) -> Iterator[Difference]:
    for option, word, shown in (("num-cpus", "cpus", str), ("memory", "memory", _size), ("num-gpus", "gpus", str)):
        was, wants = old.start.get(option), new.start.get(option)
        if was != wants:
            yield Difference(word, _shown(was, shown), _shown(wants, shown), is_shared=False)
    if old.container["image"] != new.container["image"]:
        yield Difference("image", old.container["image"], new.container["image"])
    shm = [_shared_memory(one) for one in (old, new)]
    if shm[0] != shm[1] and old.start.get("memory") == new.start.get("memory"):
        # Left out, it follows from each group's memory.
        yield Difference("kuberay.shm_size", verb="another")


def _variables(old: Side, new: Side) -> Iterator[Difference]:
    """Yield variables by name: some of their values are secrets."""
    was, wants = _env(old), _env(new)
    for name in sorted(was.keys() | wants.keys()):
        if was.get(name) != wants.get(name) and not _follows(name, old, new):
            yield Difference(f"env.{name}", verb="gone" if name not in wants else "another" if name in was else "new")


def _follows(name: str, old: Side, new: Side) -> bool:
    """Say whether a variable differs because something else does."""
    if name in ray_nodes.settings():
        return True
    if name == "NVIDIA_VISIBLE_DEVICES":
        return (old.gpu_resource is None) != (new.gpu_resource is None)
    users = [(one.pod.get("securityContext") or {}).get("runAsUser") for one in (old, new)]
    return name in _OF_UNKNOWN_USERS and users[0] != users[1]


def _section(old: Side, new: Side) -> Iterator[Difference]:
    """Yield what the section `kuberay` says, as far as one value is one key of it."""
    for key, value in _KEYS.items():
        was, wants = value(old), value(new)
        if was == wants or (key == "runtime_class" and old.gpu_resource != new.gpu_resource):
            continue
        if key == "gpu_resource" and None in (was, wants):
            continue
        if isinstance(was, str | None) and isinstance(wants, str | None):
            yield Difference(f"kuberay.{key}", was, wants)
        else:
            yield Difference(f"kuberay.{key}", verb="another")


def _entries(old: Side, new: Side) -> Iterator[Difference]:
    """Yield labels and annotations by key, and volumes by where they are seen."""
    for word in ("labels", "annotations"):
        yield from _by_key(f"kuberay.{word}", old.metadata.get(word) or {}, new.metadata.get(word) or {})
    for path, verb in _changed(_volumes(old), _volumes(new)):
        yield Difference(f"kuberay.volumes at {path}", verb=verb)


def _by_key(path: str, old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[Difference]:
    for key, verb in _changed(old, new):
        if key not in names.labels(""):
            yield Difference(f"{path}.{key}", verb=verb)


def _changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key in sorted(old.keys() | new.keys()):
        if old.get(key) != new.get(key):
            yield key, "gone" if key not in new else "another" if key in old else "new"


def _env(side: Side) -> dict[str, Any]:
    return {str(one["name"]): one.get("value", one.get("valueFrom")) for one in side.container.get("env") or ()}


def _shared_memory(side: Side) -> str | None:
    volume = _by_name(side.pod.get("volumes")).get("shared-mem", {})
    size: str | None = (volume.get("emptyDir") or {}).get("sizeLimit")
    return size


def _outputs(side: Side) -> str | None:
    return _mounts(side).get("outputs", {}).get("mountPath")


def _storage(side: Side) -> str | None:
    """Return the claim behind `outputs`."""
    volume = _by_name(side.pod.get("volumes")).get("outputs", {})
    claim: str | None = (volume.get("persistentVolumeClaim") or {}).get("claimName")
    return claim


def _volumes(side: Side) -> dict[str, Any]:
    """Return what the file mounts, by where the nodes see it."""
    sources, found = _by_name(side.pod.get("volumes")), {}
    for name, mount in _mounts(side).items():
        if name not in _OWN_VOLUMES and mount["mountPath"] != SESSIONS:
            source = {key: value for key, value in sources.get(name, {}).items() if key != "name"}
            found[str(mount["mountPath"])] = (source, bool(mount.get("readOnly")))
    return found


def _mounts(side: Side) -> dict[str, Mapping[str, Any]]:
    return _by_name(side.container.get("volumeMounts"))


def _by_name(entries: Any) -> dict[str, Mapping[str, Any]]:
    return {str(one["name"]): one for one in entries or ()}


def _requests(side: Side) -> dict[str, float]:
    """Return what is requested less than it may use."""
    asked = (side.container.get("resources") or {}).get("requests") or {}
    amounts = {name: quantity(str(amount)) for name, amount in asked.items()}
    return {name: amount for name, amount in amounts.items() if amount != quantity(str(side.limits.get(name, amount)))}


def _tolerations(side: Side) -> list[Any]:
    """Return those of the file: that for machines with GPUs comes with the GPUs."""
    return [
        one for one in side.pod.get("tolerations") or () if one.get("key") != side.gpu_resource or not one.get("key")
    ]


def _spread(side: Side) -> str:
    found = side.pod.get("affinity") or {}
    if "podAffinity" in found:
        return "on one host"
    against = found.get("podAntiAffinity") or {}
    if "requiredDuringSchedulingIgnoredDuringExecution" in against:
        return "required"
    return "preferred" if against else "none"


def _security(side: Side) -> Any:
    return (side.pod.get("securityContext") or {}, side.container.get("securityContext") or {})


def _shown(value: str | None, form: Callable[[str], str]) -> str | None:
    return None if value is None else form(value)


def _size(text: str) -> str:
    return format_size(int(quantity(text)))


# Each key of the section with the part of a pod that it decides.
_KEYS: Mapping[str, Callable[[Side], Any]] = {
    "requests": _requests,
    "gpu_resource": lambda side: side.gpu_resource,
    "node_selector": lambda side: side.pod.get("nodeSelector") or {},
    "tolerations": _tolerations,
    "spread": _spread,
    "runtime_class": lambda side: side.pod.get("runtimeClassName"),
    "priority_class": lambda side: side.pod.get("priorityClassName"),
    "outputs": _outputs,
    "storage": _storage,
    "security": _security,
    "service_account": lambda side: side.pod.get("serviceAccountName"),
    "pull_secrets": lambda side: sorted(one["name"] for one in side.pod.get("imagePullSecrets") or ()),
}
