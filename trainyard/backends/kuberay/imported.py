"""Convert KubeRay's RayCluster, RayJob or RayService to a cluster file.

Both versions of these kinds work: v1 and v1alpha1.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any

from trainyard.backends.shared.ray_start import is_for_a_shell, placed, resources
from trainyard.backends.shared.taking import Step, Taking, as_name
from trainyard.seams.kube.types import quantity
from trainyard.spec.fields import is_set_by_trainyard
from trainyard.spec.kubernetes import is_set_by_kuberay
from trainyard.spec.units import format_size

GPU = "nvidia.com/gpu"
# Keys of a container that are dropped without a note: Trainyard sets them.
_OURS = ("name", "ports", "imagePullPolicy")
SHARED_MEMORY = "/dev/shm"  # noqa: S108
# Every node has its own volumes at these paths: Ray's logs, and shared memory.
_EVERYWHERE = ("/tmp/ray", SHARED_MEMORY)  # noqa: S108
_PODS = {"nodeSelector": "node_selector", "tolerations": "tolerations"}
_CLASSES = {"priorityClassName": "priority_class", "runtimeClassName": "runtime_class"}
_VOLUMES = {
    "claim": ("persistentVolumeClaim", "claimName"),
    "config_map": ("configMap", "name"),
    "secret": ("secret", "secretName"),
    "host_path": ("hostPath", "path"),
}


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
        found = self._sizes(place, name)
        if self._from.see(*place, "serviceType") == "ClusterIP":
            self._from.take(*place, "serviceType")

        if image := self._from.take(*_container(place), "image"):
            found["image"] = image

        for key in _OURS:
            self._from.take(*_container(place), key)

        found |= self._start(place, name, found)
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

        for theirs, ours in {**_PODS, **_CLASSES}.items():
            value = self._from.take(*template, "spec", theirs)
            if value and ours == "tolerations":
                # The default operator is Equal in Kubernetes, and Exists in a cluster file.
                pods[ours] = [{"operator": "Equal", **toleration} for toleration in value]
            elif value:
                pods[ours] = value

        if pods:
            self._groups[name] = pods

    def _sizes(self, place: tuple[Step, ...], name: str) -> dict[str, Any]:
        """Return a group's CPUs, memory and GPUs: limits, else requests.

        Requests below the limits are put below kuberay.groups.
        """
        resources = (*_container(place), "resources")
        limits = self._from.take(*resources, "limits") or {}
        requests = self._from.take(*resources, "requests") or {}
        asked = {**requests, **limits}
        found: dict[str, Any] = {}
        smaller: dict[str, Any] = {}

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
            requested = quantity(str(requests.get("cpu", asked["cpu"])))
            if requested < cpus:
                smaller["cpus"] = requested

        if "memory" in asked:
            memory = quantity(str(asked["memory"]))
            found["memory"] = format_size(int(memory))
            requested = quantity(str(requests.get("memory", asked["memory"])))
            if requested < memory:
                smaller["memory"] = format_size(int(requested))

        if GPU in asked:
            found["gpus"] = int(quantity(str(asked[GPU])))

        self._note_resources(name, sorted(asked.keys() - {"cpu", "memory", GPU}))
        if smaller:
            self._groups[name] = {"requests": smaller}
        return found

    def _note_resources(self, name: str, keys: Sequence[str]) -> None:
        for key in keys:
            why = "has no place here"
            # The name of a vendor's resource, such as another GPU, has a domain.
            if "/" in key:
                why = f"to use GPUs other than {GPU}, set kuberay.gpu_resource"
            self._notes.append(f"{key} of {name}: {why}")

    def _start(
        self, place: tuple[Step, ...], name: str, sizes: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the parameters of `ray start` as a cluster file's keys."""
        found: dict[str, Any] = {}
        words: dict[str, Any] = {}
        rest: dict[str, Any] = {}
        for key, value in (self._from.take(*place, "rayStartParams") or {}).items():
            if key in _WORDS and not is_for_a_shell(value):
                words[key] = value
            else:
                rest[key] = value

        if "num-cpus" in words:
            found["cpus"] = int(words["num-cpus"])

        if "num-gpus" in words:
            found["gpus"] = int(words["num-gpus"])

        if "resources" in words:
            found |= self._resources(name, _quoted(words["resources"]))

        if "labels" in words:
            found["labels"] = dict(pair.split("=", 1) for pair in str(words["labels"]).split(","))

        # Since KubeRay 1.5 a group has its own `resources` and `labels`; they override
        # rayStartParams.
        found |= self._resources(name, self._from.take(*place, "resources") or {})
        if labels := self._from.take(*place, "labels"):
            found["labels"] = labels

        ray_start, notes = placed(rest, name)
        if ray_start:
            found["ray_start"] = ray_start

        self._notes += notes
        if found.get("cpus") == 0 and sizes.get("cpus", 0) > 1:
            self._request_all(name, sizes["cpus"])

        return found

    def _request_all(self, name: str, cpus: int) -> None:
        """Request all CPUs of the container for a node with `cpus: 0`.

        A cluster file has no CPU limit for such a node: its limit is its
        request.
        """
        requests = self._groups.setdefault(name, {}).setdefault("requests", {})
        if "cpus" in requests:
            self._notes.append(f"{name} requests all of its {cpus} CPUs, not {requests['cpus']:g}")
        requests["cpus"] = cpus

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
            by_group[group] = {entry["name"]: entry.get("value") for entry in entries}

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
        """Take the groups' common service account, pull Secrets and volumes."""
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

        volumes = [self._mounted(place) for place in places]
        self._shared_memory(volumes)
        shared = [volume for volume in volumes[0] if all(volume in each for each in volumes)]
        own = [volume for volume in shared if not _is_everywhere(volume)]
        if own:
            self._kuberay["volumes"] = own

        for place, mounted in zip(places, volumes, strict=True):
            taken = []
            for volume in mounted:
                if volume in own or _is_everywhere(volume):
                    taken.append(volume["target"])
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

            target = mount["mountPath"]
            volume = sources.get(mount["name"], {})
            for ours, (theirs, key) in _VOLUMES.items():
                if theirs in volume and volume[theirs].keys() <= {key, "type"}:
                    entry = {"target": target, ours: volume[theirs][key]}
                    if mount.get("readOnly"):
                        entry["read_only"] = True
                    found.append(entry)

            if "emptyDir" in volume:
                empty_dir = _empty_dir(volume["emptyDir"] or {})
                found.append({"target": target, "empty_dir": empty_dir})

        return found

    def _forget_mounts(self, place: tuple[Step, ...], targets: Sequence[str]) -> None:
        mounts = self._from.see(*_container(place), "volumeMounts") or []
        names = {mount["name"] for mount in mounts if mount["mountPath"] in targets}
        for index, mount in enumerate(mounts):
            if mount["mountPath"] in targets:
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


def _is_everywhere(volume: Mapping[str, Any]) -> bool:
    return volume["target"] in _EVERYWHERE and "empty_dir" in volume


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
