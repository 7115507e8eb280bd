"""Convert KubeRay's RayCluster, RayJob or RayService to a cluster file.

Both versions of these kinds work: v1 and v1alpha1.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from pathlib import PurePosixPath
from typing import Any

from trainyard.backends.shared.ray_start import is_for_a_shell, labels_of, placed, resources
from trainyard.backends.shared.taking import Step, Taking, as_name
from trainyard.seams.kube.types import quantity
from trainyard.spec.fields import is_set_by_trainyard
from trainyard.spec.kubernetes import OUTPUTS, SESSIONS, SHARED_MEMORY, is_set_by_kuberay
from trainyard.spec.units import format_size, parse_size

GPU = "nvidia.com/gpu"
# Keys of a container that are dropped without a note: Trainyard sets them.
_OURS = ("name", "ports", "imagePullPolicy")
# Every node has its own volumes at these paths.
_EVERYWHERE = (SESSIONS, SHARED_MEMORY, OUTPUTS)
_PODS = {
    "nodeSelector": "node_selector",
    "priorityClassName": "priority_class",
    "runtimeClassName": "runtime_class",
}
_TOLERATION = ("key", "operator", "value", "effect")
# The keys of a size, and what Kubernetes calls them.
_LIMITS = {"cpus": "cpu", "memory": "memory", "gpus": GPU}
_VOLUMES = {
    "claim": ("persistentVolumeClaim", "claimName"),
    "config_map": ("configMap", "name"),
    "secret": ("secret", "secretName"),
    "host_path": ("hostPath", "path"),
}
# Types of a hostPath that mean a directory which is there, as in a cluster file.
_DIRECTORY = (None, "", "Directory")
# Media of an emptyDir that a cluster file has: disk, and memory.
_MEDIUMS = (None, "", "Memory")
# `$$`, or the name in `$(NAME)`, as Kubernetes reads them in a variable's value.
_REFERENCE = re.compile(r"\$\$|\$\(([^)]*)\)")
# Parameters of `ray start` for which a cluster file has other keys.
_WORDS = ("num-cpus", "num-gpus", "resources", "labels")
# Other kinds of KubeRay that have a RayCluster's spec, and the key of that spec.
_CLUSTER_OF = {"RayJob": "rayClusterSpec", "RayService": "rayClusterConfig"}
# Keys of a RayJob, and the corresponding keys of a job file.
_OF_A_JOB = {
    "entrypoint": "command",
    "runtimeEnvYAML": "runtime_env",
    "entrypointNumCpus": "resources.cpus",
    "entrypointNumGpus": "resources.gpus",
    "entrypointResources": "resources.custom",
}
# The default of maxReplicas (ray.io_rayclusters.yaml).
_UNBOUNDED = 2147483647


def is_one(document: Mapping[str, Any]) -> bool:
    kind = document.get("kind")
    if not str(document.get("apiVersion", "")).startswith("ray.io/"):
        return False
    return kind == "RayCluster" or (kind in _CLUSTER_OF and _CLUSTER_OF[kind] in document["spec"])


def convert(document: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the cluster file, and notes on lost, changed and job settings."""
    key = _CLUSTER_OF.get(document["kind"])
    if key is None:
        return _Conversion(document).run()
    rest = {**document["spec"]}
    found, notes = _Conversion({**document, "kind": "RayCluster", "spec": rest.pop(key)}).run()
    for theirs, ours in _OF_A_JOB.items():
        if value := rest.pop(theirs, None):
            notes.append(
                f"spec.{theirs} is the `{ours}:` of a job.yaml: {' '.join(str(value).split())}"
            )
    return found, [*notes, *(f"spec.{name}: has no place here" for name in rest)]


class _Conversion:
    def __init__(self, document: Mapping[str, Any]) -> None:
        self._from = Taking(document)
        self._notes: list[str] = []
        self._kuberay: dict[str, Any] = {}
        self._groups: dict[str, dict[str, Any]] = {}

    def run(self) -> tuple[dict[str, Any], list[str]]:
        """Take all keys that fit; return the file's content, and the notes."""
        take = self._from.take
        for key in ("apiVersion", "kind"):
            take(key)

        name = self._named(str(take("metadata", "name") or "ray"), "the cluster")
        if namespace := take("metadata", "namespace"):
            self._kuberay["namespace"] = namespace

        if version := take("spec", "rayVersion"):
            self._notes.append(
                f"spec.rayVersion {version} is not used: the version of Ray is the image's, which "
                "cluster.up checks"
            )

        grows = take("spec", "enableInTreeAutoscaling") is True
        idle = take("spec", "autoscalerOptions", "idleTimeoutSeconds")
        self._autoscaler()
        head = self._group(("spec", "headGroupSpec"), "head")
        workers = []
        places: dict[str, tuple[Step, ...]] = {"head": ("spec", "headGroupSpec")}
        for index in range(len(self._from.see("spec", "workerGroupSpecs") or ())):
            place = ("spec", "workerGroupSpecs", index)
            group = self._workers(place, grows=grows, idle=idle)
            workers.append(group)
            places[group["name"]] = place

        env = self._shared_env(places)
        self._shared_pods(list(places.values()))
        self._volumes(places)
        file: dict[str, Any] = {"name": name, "backend": "kuberay", **_one_image([head, *workers])}
        sections = {"head": head, "workers": workers, "env": env, "kuberay": self._kuberay}

        if self._groups:
            self._kuberay["groups"] = self._groups

        file |= {key: value for key, value in sections.items() if value}
        return file, [*self._notes, *(f"{path}: has no place here" for path in self._from.left())]

    def _autoscaler(self) -> None:
        place = ("spec", "autoscalerOptions")
        found = self._from.see(*place, "resources") or {}
        limits = found.get("limits")
        requests = found.get("requests")
        if limits and limits.keys() == {"cpu", "memory"} and requests in (None, limits):
            self._from.take(*place, "resources")
            memory = format_size(int(quantity(str(limits["memory"]))))
            self._kuberay["autoscaler"] = {"cpus": quantity(str(limits["cpu"])), "memory": memory}

    def _named(self, written: str, what: str) -> str:
        name = as_name(written)
        if name != written:
            self._notes.append(f"{what} is called {name} here, not {written}")
        return name

    def _workers(
        self, place: tuple[Step, ...], *, grows: bool, idle: float | None
    ) -> dict[str, Any]:
        """Return a worker group's keys.

        `grows` and `idle` are the RayCluster's autoscaling, and its idle
        timeout in seconds.
        """
        take = self._from.take
        group: dict[str, Any] = {
            "name": self._named(str(take(*place, "groupName") or "workers"), "a group")
        }

        hosts = take(*place, "numOfHosts") or 1
        if hosts > 1:
            self._notes.append(
                f"group {group['name']}: each of the {hosts} hosts of a replica is a node here"
            )

        least, wanted, most = self._replicas(place, group["name"], grows=grows, hosts=hosts)
        # Taken in any case, so that no note names it as unread.
        own_idle = take(*place, "idleTimeoutSeconds")
        if own_idle is not None:
            idle = own_idle

        if grows and most > least:
            group |= {"min": least * hosts, "max": most * hosts}
            if wanted != least:
                self._notes.append(
                    f"group {group['name']} begins with {least * hosts} nodes, not "
                    f"{wanted * hosts}: the autoscaler adds those that tasks need"
                )
            if idle:
                group["idle_timeout"] = f"{idle}s"
            elif idle is not None:
                self._notes.append(
                    f"group {group['name']}: idleTimeoutSeconds: 0 has no place here; idle nodes "
                    "end after `idle_timeout`, 60 s by default"
                )
        else:
            group["count"] = wanted * hosts

        return {**group, **self._group(place, group["name"])}

    def _replicas(
        self, place: tuple[Step, ...], name: str, *, grows: bool, hosts: int
    ) -> tuple[int, int, int]:
        """Return the least, desired and most replicas.

        The rules are those of KubeRay's GetWorkerGroupDesiredReplicas. `hosts`,
        the nodes of a replica, are only for a note.
        """
        replicas = self._from.take(*place, "replicas")
        least = self._from.take(*place, "minReplicas") or 0
        most = self._from.take(*place, "maxReplicas")
        if most is None:
            most = _UNBOUNDED
        wanted = min(max(replicas or 0, least), most)

        if self._from.take(*place, "suspend"):
            self._notes.append(f"group {name}: suspended, so it has no nodes")
            return 0, 0, 0

        if replicas is not None and wanted != replicas:
            self._notes.append(
                f"group {name} has {wanted}, not {replicas}, because of minReplicas or maxReplicas"
            )

        if grows and most == _UNBOUNDED:
            most = max(wanted, least + 1)
            self._notes.append(
                f"group {name}: grows without a limit there; `max: {most * hosts}` is written, "
                "which may be too few"
            )

        return least, wanted, most

    def _group(self, place: tuple[Step, ...], name: str) -> dict[str, Any]:
        """Return the keys that head and workers share.

        Puts the pods' settings below kuberay.groups.
        """
        sizes, requested = self._sizes(place, name)
        if self._from.see(*place, "serviceType") == "ClusterIP":
            self._from.take(*place, "serviceType")

        if image := self._from.take(*_container(place), "image"):
            sizes["image"] = image

        for key in _OURS:
            self._from.take(*_container(place), key)

        start, causes = self._start(place, name)
        found = {**sizes, **start}
        self._note_limits(name, sizes, found, causes)
        if smaller := self._requests(name, sizes, found, requested):
            self._groups[name] = {"requests": smaller}

        self._pods(place, name)
        return found

    def _pods(self, place: tuple[Step, ...], name: str) -> None:
        """Put pods' labels, annotations and placement below kuberay.groups."""
        pods: dict[str, Any] = self._groups.get(name, {})
        template = (*place, "template")
        for key in ("labels", "annotations"):
            kept = {}
            for label, text in (self._from.take(*template, "metadata", key) or {}).items():
                if is_set_by_kuberay(label):
                    self._notes.append(f"{key} of {name}: {label} is set by KubeRay or Trainyard")
                else:
                    kept[label] = text
            if kept:
                pods[key] = kept

        for theirs, ours in _PODS.items():
            if value := self._from.take(*template, "spec", theirs):
                pods[ours] = value

        if tolerations := self._tolerations(place):
            pods["tolerations"] = tolerations

        if pods:
            self._groups[name] = pods

    def _tolerations(self, place: tuple[Step, ...]) -> list[dict[str, Any]]:
        path = (*place, "template", "spec", "tolerations")
        found = []
        for index in range(len(self._from.see(*path) or ())):
            # The default operator is Equal in Kubernetes, and Exists in a cluster file.
            toleration: dict[str, Any] = {"operator": "Equal"}
            for key in _TOLERATION:
                if value := self._from.take(*path, index, key):
                    toleration[key] = value
            found.append(toleration)
        return found

    def _sizes(self, place: tuple[Step, ...], name: str) -> tuple[dict[str, Any], dict[str, float]]:
        """Return a group's CPUs, memory and GPUs, and its requests.

        Sizes are the limits, else the requests; requests are CPUs and bytes.
        """
        resources = (*_container(place), "resources")
        limits = self._from.take(*resources, "limits") or {}
        requests = self._from.take(*resources, "requests") or {}
        asked = {**requests, **limits}
        found: dict[str, Any] = {}
        requested: dict[str, float] = {}

        if without := sorted({"cpu", "memory"} & requests.keys() - limits.keys()):
            self._notes.append(
                f"{' and '.join(without)} of {name}: the request becomes the limit, too"
            )

        if "cpu" in asked:
            cpus = quantity(str(asked["cpu"]))
            found["cpus"] = ceil(cpus)
            if cpus != ceil(cpus):
                self._notes.append(
                    f"{asked['cpu']} CPUs of {name} became {ceil(cpus)}: nodes have whole ones"
                )
            requested["cpus"] = found["cpus"]
            if "cpu" in requests:
                requested["cpus"] = quantity(str(requests["cpu"]))

        if "memory" in asked:
            memory = quantity(str(asked["memory"]))
            found["memory"] = format_size(int(memory))
            requested["memory"] = int(quantity(str(requests.get("memory", asked["memory"]))))

        if GPU in asked:
            found["gpus"] = int(quantity(str(asked[GPU])))

        self._note_resources(name, sorted(asked.keys() - {"cpu", "memory", GPU}))
        return found, requested

    def _note_limits(
        self,
        name: str,
        sizes: Mapping[str, Any],
        found: Mapping[str, Any],
        causes: Mapping[str, str],
    ) -> None:
        """Note the limits that Ray's numbers replace.

        `causes` has the parameter behind each such number.
        """
        limits = {"gpus": 0, **sizes}
        for key, cause in causes.items():
            # With `cpus: 0` the container keeps its CPUs.
            is_kept = key == "cpus" and found[key] == 0
            if key in limits and key in _LIMITS and limits[key] != found[key] and not is_kept:
                self._notes.append(
                    f"{_LIMITS[key]} of {name}: the limit {limits[key]} becomes {found[key]}, "
                    f"because of {cause}"
                )

    def _requests(
        self,
        name: str,
        sizes: Mapping[str, Any],
        found: Mapping[str, Any],
        requested: Mapping[str, float],
    ) -> dict[str, Any]:
        """Return the requests that are less than the limits in the file.

        A cluster file cannot give a CPU limit to a node with `cpus: 0`. The
        node's request is also its limit, so it becomes the container's limit.
        """
        smaller: dict[str, Any] = {}
        cpus = requested.get("cpus", 0)
        if cpus and found["cpus"] == 0 and sizes["cpus"] > 1:
            smaller["cpus"] = sizes["cpus"]
            if cpus < sizes["cpus"]:
                self._notes.append(f"{name} requests all of its {sizes['cpus']} CPUs, not {cpus:g}")
        elif cpus and cpus < (found["cpus"] or 1):
            smaller["cpus"] = cpus
        elif cpus and cpus < sizes["cpus"]:
            self._notes.append(f"cpu of {name}: the request {cpus:g} becomes {found['cpus']}, too")

        memory = int(requested.get("memory", 0))
        if memory and memory < parse_size(found["memory"]):
            smaller["memory"] = format_size(memory)
        elif memory and memory < parse_size(sizes["memory"]):
            self._notes.append(
                f"memory of {name}: the request {format_size(memory)} becomes "
                f"{found['memory']}, too"
            )

        return smaller

    def _note_resources(self, name: str, keys: Sequence[str]) -> None:
        for key in keys:
            why = "has no place here"
            # The name of a vendor's resource, such as another GPU, has a domain.
            if "/" in key:
                why = f"to use GPUs other than {GPU}, set kuberay.gpu_resource"
            self._notes.append(f"{key} of {name}: {why}")

    def _start(self, place: tuple[Step, ...], name: str) -> tuple[dict[str, Any], dict[str, str]]:
        """Return a cluster file's keys for the parameters of `ray start`.

        Also returns the parameter behind each size.
        """
        found: dict[str, Any] = {}
        causes: dict[str, str] = {}
        words: dict[str, Any] = {}
        rest: dict[str, Any] = {}
        for key, value in (self._from.take(*place, "rayStartParams") or {}).items():
            if key in _WORDS and not is_for_a_shell(value):
                words[key] = value
            else:
                rest[key] = value

        for key, ours in (("num-cpus", "cpus"), ("num-gpus", "gpus")):
            if key in words:
                found[ours] = int(words[key])
                causes[ours] = key

        if "labels" in words:
            found["labels"] = labels_of(str(words["labels"]).strip("'"))

        # Since KubeRay 1.5 a group has its own `resources` and `labels`; they override
        # rayStartParams.
        own = self._from.take(*place, "resources") or {}
        for written in (_quoted(words.get("resources", "{}")), own):
            given = self._resources(name, written)
            found |= given
            causes |= dict.fromkeys(given, "resources")

        if labels := self._from.take(*place, "labels"):
            found["labels"] = labels

        ray_start, notes = placed(rest, name)
        if ray_start:
            found["ray_start"] = ray_start

        self._notes += notes
        return found, causes

    def _resources(self, name: str, written: Mapping[str, Any]) -> dict[str, Any]:
        found, notes = resources(written, name, amount_of=lambda value: quantity(str(value)))
        self._notes += notes
        return found

    def _shared_env(self, places: Mapping[str, tuple[Step, ...]]) -> dict[str, str]:
        """Take the groups' env; return the variables that all groups share.

        Puts the rest below kuberay.groups.
        """
        by_group = {}
        for group, place in places.items():
            entries = self._from.take(*_container(place), "env") or []
            by_group[group] = self._expanded(group, entries)

        shared = {}
        for name, value in by_group["head"].items():
            if value is not None and all(env.get(name) == value for env in by_group.values()):
                shared[name] = str(value)

        ours = [name for name, value in shared.items() if is_set_by_trainyard(name, value)]
        if ours:
            self._notes.append(f"{', '.join(ours)}: Trainyard sets this itself")
            shared = {name: value for name, value in shared.items() if name not in ours}

        for group, env in by_group.items():
            rest = {name: value for name, value in env.items() if name not in (*shared, *ours)}
            self._group_env(group, rest)
        return shared

    def _expanded(self, group: str, entries: Iterable[Mapping[str, Any]]) -> dict[str, str | None]:
        """Return a container's variables as Kubernetes expands them.

        A variable without plain text is None; one with a reference to anything
        but an earlier one with plain text becomes a note.
        """
        found: dict[str, str | None] = {}
        for entry in entries:
            name = entry["name"]
            text = entry.get("value")
            if text is not None:
                text = _expand(str(text), found)
                if text is None:
                    found.pop(name, None)
                    self._notes.append(
                        f"{name} of {group}: {entry['value']} needs Kubernetes to expand it; "
                        "`env` takes only plain text"
                    )
                    continue
            found[name] = text
        return found

    def _group_env(self, group: str, env: Mapping[str, Any]) -> None:
        """Put a group's variables below kuberay.groups, or note why not."""
        own = {}
        without_text = []
        by_trainyard = []
        for name, value in env.items():
            if value is None:
                without_text.append(name)
            elif is_set_by_trainyard(name, str(value)):
                by_trainyard.append(name)
            else:
                own[name] = str(value)

        if without_text:
            self._notes.append(f"{', '.join(without_text)} of {group}: `env` takes only plain text")
        if by_trainyard:
            self._notes.append(f"{', '.join(by_trainyard)} of {group}: Trainyard sets this itself")
        if own:
            self._groups.setdefault(group, {})["env"] = own

    def _shared_pods(self, places: Sequence[tuple[Step, ...]]) -> None:
        """Take the groups' common service account and pull Secrets."""
        specs = [(*place, "template", "spec") for place in places]
        for theirs, ours in (
            ("serviceAccountName", "service_account"),
            ("imagePullSecrets", "pull_secrets"),
        ):
            values = [self._from.see(*spec, theirs) for spec in specs]
            if values[0] and all(value == values[0] for value in values):
                for spec in specs:
                    self._from.take(*spec, theirs)
                if ours == "service_account":
                    self._kuberay[ours] = values[0]
                else:
                    self._kuberay[ours] = [one["name"] for one in values[0]]

    def _volumes(self, places: Mapping[str, tuple[Step, ...]]) -> None:
        """Take the volumes that all groups share, or that every node has."""
        volumes = {group: self._mounted(place) for group, place in places.items()}
        self._shared_memory(list(volumes.values()))
        kept = []
        for volume in volumes["head"]:
            if not all(volume in mounted for mounted in volumes.values()):
                continue
            if volume["target"] == OUTPUTS and volume.keys() == {"target", "claim"}:
                self._kuberay["storage"] = {"claim": volume["claim"]}
                self._notes.append(
                    f"claim {volume['claim']} at {OUTPUTS} becomes kuberay.storage, which also "
                    "keeps checkpoints"
                )
            elif volume["target"] in _EVERYWHERE:
                continue
            else:
                self._kuberay.setdefault("volumes", []).append(volume)
            kept.append(volume)

        for group, place in places.items():
            taken = []
            for volume in volumes[group]:
                if volume in kept:
                    taken.append(volume["target"])
                elif volume["target"] in _EVERYWHERE:
                    taken.append(volume["target"])
                    self._notes += _differences(volume, group)
            self._forget_mounts(place, taken)

    def _shared_memory(self, volumes: Sequence[Sequence[dict[str, Any]]]) -> None:
        """Take the size of shared memory; different sizes become a note."""
        sizes = set()
        for mounted in volumes:
            for volume in mounted:
                size = volume.get("empty_dir", {}).get("size")
                if volume["target"] == SHARED_MEMORY and size is not None:
                    sizes.add(size)

        if len(sizes) == 1:
            self._kuberay["shm_size"] = sizes.pop()
        elif sizes:
            self._notes.append(
                f"{SHARED_MEMORY} of {' or '.join(sorted(sizes))}: kuberay.shm_size is the same "
                "for all nodes"
            )

    def _mounted(self, place: tuple[Step, ...]) -> list[dict[str, Any]]:
        """Return the mounts in Ray's container that fit `kuberay.volumes`."""
        volumes = self._from.see(*place, "template", "spec", "volumes") or []
        sources = {volume["name"]: volume for volume in volumes}
        found = []

        for mount in self._from.see(*_container(place), "volumeMounts") or []:
            if not mount.keys() <= {"name", "mountPath", "readOnly"}:
                continue

            target = _target(mount)
            volume = sources.get(mount["name"], {})
            for ours, (theirs, key) in _VOLUMES.items():
                if theirs in volume and _is_plain(volume[theirs], key):
                    entry = {"target": target, ours: volume[theirs][key]}
                    if mount.get("readOnly"):
                        entry["read_only"] = True
                    found.append(entry)

            empty = volume.get("emptyDir") or {}
            if "emptyDir" in volume and empty.get("medium") in _MEDIUMS:
                empty_dir = _empty_dir(empty)
                found.append({"target": target, "empty_dir": empty_dir})

        return found

    def _forget_mounts(self, place: tuple[Step, ...], targets: Sequence[str]) -> None:
        mounts = self._from.see(*_container(place), "volumeMounts") or []
        names = {mount["name"] for mount in mounts if _target(mount) in targets}
        for index, mount in enumerate(mounts):
            if _target(mount) in targets:
                self._from.take(*_container(place), "volumeMounts", index)
        for index, volume in enumerate(self._from.see(*place, "template", "spec", "volumes") or []):
            if volume and volume["name"] in names:
                self._from.take(*place, "template", "spec", "volumes", index)


def _container(place: tuple[Step, ...]) -> tuple[Step, ...]:
    """Return the path of Ray's container; KubeRay takes the first one."""
    return (*place, "template", "spec", "containers", 0)


def _one_image(groups: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Move the image out of the groups if all have the same."""
    images = {group.get("image") for group in groups}
    if len(images) > 1 or images == {None}:
        return {}
    image = groups[0]["image"]
    for group in groups:
        del group["image"]
    return {"image": image}


def _target(mount: Mapping[str, Any]) -> str:
    return str(PurePosixPath(mount["mountPath"]))


def _is_plain(source: Mapping[str, Any], key: str) -> bool:
    """Say whether a volume has a place in a cluster file, by `key` alone."""
    return source.keys() <= {key, "type"} and source.get("type") in _DIRECTORY


def _differences(volume: Mapping[str, Any], group: str) -> list[str]:
    """Return notes on a volume in the place of one that every node has."""
    target = volume["target"]
    if "empty_dir" not in volume:
        source = next(key for key in _VOLUMES if key in volume)
        return [
            f"{source} {volume[source]} at {target} of {group} is left out: every node has a "
            "volume there already"
        ]

    notes = []
    empty_dir = volume["empty_dir"]
    if "size" in empty_dir and target != SHARED_MEMORY:
        notes.append(f"{target} of {group}: the size limit {empty_dir['size']} has no place here")

    is_in_memory = "memory" in empty_dir
    if is_in_memory and target != SHARED_MEMORY:
        notes.append(f"{target} of {group}: is on disk here, not in memory")
    elif target == SHARED_MEMORY and not is_in_memory:
        notes.append(f"{target} of {group}: is in memory here, not on disk")

    return notes


def _expand(text: str, variables: Mapping[str, str | None]) -> str | None:
    """Expand `$(NAME)` and `$$`; return None if a name has no plain text."""
    names = [match[1] for match in _REFERENCE.finditer(text) if match[1] is not None]
    if any(variables.get(name) is None for name in names):
        return None
    return _REFERENCE.sub(lambda match: str(variables.get(match[1], "$")), text)


def _empty_dir(written: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if size := written.get("sizeLimit"):
        found["size"] = format_size(int(quantity(str(size))))
    if written.get("medium") == "Memory":
        return {**found, "memory": True}
    return found


def _quoted(value: str) -> dict[str, Any]:
    """Parse custom resources: KubeRay's samples write JSON in shell quotes."""
    found = json.loads(value.strip("'"))
    if isinstance(found, str):
        found = json.loads(found)
    written: dict[str, Any] = found
    return written
