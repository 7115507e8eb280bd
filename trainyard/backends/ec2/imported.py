"""A cluster file of `ray up` on AWS -> one with the backend ec2; what Ray alone knows goes below
`ec2.ray`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from trainyard.backends.shared.ray_start import commands, parameters, placed, resources
from trainyard.backends.shared.taking import Taking, as_name
from trainyard.errors import RequestError
from trainyard.spec.ec2 import OPEN, OPEN_BELOW, OPEN_IN_GROUPS

# What Ray takes where a file says nothing (ray/autoscaler/aws/defaults.yaml).
_HEAD_TYPE = "ray.head.default"
_MAX_WORKERS = 2
# A port that Ray's examples name, and nodes find out from each other.
_OF_EXAMPLES = {"object-manager-port": "8076"}


def is_one(document: Mapping[str, Any]) -> bool:
    return "cluster_name" in document and isinstance(document.get("provider"), dict)


def convert(document: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return a cluster file's content, and sentences about what has no place in it, or another one.

    Raises RequestError for another cloud than AWS, and for a file as Ray had them before 1.2
    (head_node).
    """
    provider = document["provider"].get("type")
    if provider != "aws":
        hint = (
            "A cluster that runs there is used as it is: trainyard cluster.new NAME --backend "
            "existing."
        )
        raise RequestError(
            f"the file is for {provider}, and instances are made on AWS alone", hint=hint
        )

    if "available_node_types" not in document:
        if document.keys() & {"head_node", "worker_nodes"}:
            hint = (
                "Ray itself takes no such file any more: write available_node_types, as its "
                "examples have them."
            )
        else:
            hint = (
                "Ray makes nodes of its own choice then. Write them: available_node_types, as "
                "its examples have them."
            )

        raise RequestError("the file has no available_node_types", hint=hint)

    types = {
        name: _with_plain_network(kind) for name, kind in document["available_node_types"].items()
    }
    notes = []

    if "head_node_type" not in document and _HEAD_TYPE in types:
        document = {**document, "head_node_type": _HEAD_TYPE}

    if document.get("max_workers") is None and any(
        "max_workers" not in kind for kind in types.values()
    ):
        document = {**document, "max_workers": _MAX_WORKERS}
        notes.append(f"max_workers is {_MAX_WORKERS} where the file says nothing, as Ray has it")

    head_type = str(document.get("head_node_type"))
    if head_type in types and _makes_workers(types[head_type]) and document.get("max_workers") != 0:
        name = f"{as_name(head_type.removeprefix('ray.'))}-workers"
        types[name] = types[head_type]
        notes.append(f"node type {head_type} has workers, too: they are group {name} here")

    found, others = _Conversion({**document, "available_node_types": types}).run()
    return found, [*notes, *others]


def _makes_workers(kind: Mapping[str, Any]) -> bool:
    """Say whether Ray makes more nodes of the head's type; by default it makes none."""
    return bool(kind.get("max_workers") or kind.get("min_workers"))


def _with_plain_network(kind: Mapping[str, Any]) -> dict[str, Any]:
    """Return a node type whose only network interface is written as EC2 takes it too: SubnetIds,
    SecurityGroupIds.
    """
    config = {**(kind.get("node_config") or {})}
    interfaces = config.get("NetworkInterfaces") or []
    if len(interfaces) != 1 or config.keys() & {"SubnetIds", "SecurityGroupIds"}:
        return {**kind}

    rest = {
        key: value for key, value in interfaces[0].items() if (key, value) != ("DeviceIndex", 0)
    }
    if subnet := rest.pop("SubnetId", None):
        config["SubnetIds"] = [subnet]

    if groups := rest.pop("Groups", None):
        config["SecurityGroupIds"] = groups

    config["NetworkInterfaces"] = [rest] if rest else []
    return {**kind, "node_config": config}


class _Conversion:
    def __init__(self, document: Mapping[str, Any]) -> None:
        self._from = Taking(document)
        self._notes: list[str] = []
        self._ec2: dict[str, Any] = {}
        self._ray: dict[str, Any] = {}

    def run(self) -> tuple[dict[str, Any], list[str]]:
        """Take what has a place; return the file, and notes."""
        take = self._from.take
        written = str(take("cluster_name"))
        name = as_name(written)
        if name != written:
            self._notes.append(f"the cluster is called {name} here, not {written}")

        self._provider()
        self._login()
        image, workers_image = self._images()
        idle = take("idle_timeout_minutes")
        head_type = take("head_node_type")
        types = list(self._from.see("available_node_types"))
        if head_type not in types:
            if head_type:
                wrong = f"head_node_type {head_type!r} is none of"
            else:
                wrong = "the file has no head_node_type, one of"
            raise RequestError(f"{wrong} available_node_types: {', '.join(types)}")

        head = self._group(head_type, "head")
        for key in ("min_workers", "max_workers"):
            take("available_node_types", head_type, key)

        kinds = [each for each in types if each != head_type]
        workers = [self._workers(each, idle=idle) for each in kinds]
        most = take("max_workers")
        if most is not None and most < sum(
            group.get("max", group.get("count", 0)) for group in workers
        ):
            self._notes.append(f"max_workers {most}: here each group has its own")

        for kind, group in zip(kinds, workers, strict=True):
            own = take("available_node_types", kind, "docker", "worker_image")
            if (own or workers_image) not in (None, image):
                group["image"] = own or workers_image

        self._additions()
        self._started("head_start_ray_commands", "the head", [head])
        self._started("worker_start_ray_commands", "workers", workers)
        file: dict[str, Any] = {"name": name, "backend": "ec2"}
        sections = {"image": image, "head": head, "workers": workers, "ec2": self._ec2}

        if self._ray:
            self._ec2["ray"] = self._ray

        file |= {key: value for key, value in sections.items() if value}
        return file, [*self._notes, *(f"{path}: has no place here" for path in self._from.left())]

    def _provider(self) -> None:
        take = self._from.take
        take("provider", "type")
        # Trainyard terminates what it ends.
        if take("provider", "cache_stopped_nodes") is not False:
            self._notes.append(
                "provider.cache_stopped_nodes: instances are terminated, not stopped"
            )

        if region := take("provider", "region"):
            self._ec2["region"] = region

        if zones := take("provider", "availability_zone"):
            self._ec2["zones"] = [zone.strip() for zone in zones.split(",")]

        if take("provider", "use_internal_ips"):
            self._ec2["use_internal_ips"] = True

        if profile := take("provider", "aws_credentials", "aws_profile"):
            self._ec2["profile"] = profile

    def _login(self) -> None:
        if user := self._from.take("auth", "ssh_user"):
            self._ec2["user"] = user
        key = self._from.see("auth", "ssh_private_key")
        if key and (names := self._in_all("KeyName")):
            self._from.take("auth", "ssh_private_key")
            self._ec2 |= {"key_name": names, "key_file": key}

    def _images(self) -> tuple[str | None, str | None]:
        """Return the image of the head, and that of workers; None where instances run no
        containers.
        """
        take = self._from.take
        image, head, workers = (
            take("docker", key) for key in ("image", "head_image", "worker_image")
        )
        take("docker", "container_name")
        if options := take("docker", "run_options"):
            self._ec2["docker_options"] = options
        return head or image, workers or image

    def _in_all(self, key: str, *, at_most: int | None = None) -> Any:
        """Take a value that all node types have alike; None if they differ, or if it is a list of
        more than that.
        """
        types = list(self._from.see("available_node_types"))
        values = [
            self._from.see("available_node_types", each, "node_config", key) for each in types
        ]
        if values[0] is None or any(value != values[0] for value in values):
            return None
        if at_most is not None and len(values[0]) > at_most:
            return None
        for each in types:
            self._from.take("available_node_types", each, "node_config", key)
        return values[0]

    def _workers(self, kind: str, *, idle: float | None) -> dict[str, Any]:
        name = as_name(kind.removeprefix("ray."))
        if name != kind:
            self._notes.append(f"node type {kind} is group {name} here")
        least = self._from.take("available_node_types", kind, "min_workers") or 0
        most = self._from.take("available_node_types", kind, "max_workers")
        # One of both is there: `convert` has filled in what Ray takes where neither is.
        most = min(each for each in (most, self._from.see("max_workers")) if each is not None)
        group: dict[str, Any] = {"name": name, "min": least, "max": most} if most > least else {}
        group = group or {"name": name, "count": least}
        if "max" in group and idle:
            group["idle_timeout"] = f"{idle:g}m"
        return {**group, **self._group(kind, name)}

    def _group(self, kind: str, name: str) -> dict[str, Any]:
        """Return the head or a group of workers; its instances go to ec2.groups."""
        found, notes = resources(
            self._from.take("available_node_types", kind, "resources") or {}, kind
        )
        self._notes += notes
        if labels := self._from.take("available_node_types", kind, "labels"):
            found["labels"] = labels
        if instances := self._instances(kind):
            self._ec2.setdefault("groups", {})[name] = instances
        self._of_ray(kind, name)
        return found

    def _instances(self, kind: str) -> dict[str, Any]:
        """Return what the instances of a type are."""
        take = self._from.take
        place = ("available_node_types", kind)
        instances: dict[str, Any] = {}

        for theirs, ours in (("InstanceType", "instance_type"), ("ImageId", "ami")):
            if value := take(*place, "node_config", theirs):
                instances[ours] = value

        market = (*place, "node_config", "InstanceMarketOptions", "MarketType")
        if self._from.see(*market) == "spot":
            take(*market)
            instances["spot"] = True

        disk = take(*place, "node_config", "BlockDeviceMappings", 0, "Ebs", "VolumeSize")
        if disk:
            take(*place, "node_config", "BlockDeviceMappings", 0, "DeviceName")
            instances["disk"] = f"{disk}GiB"

        return instances

    def _of_ray(self, kind: str, name: str) -> None:
        """Let what Ray alone knows of a node type stand below ec2.ray."""
        own: dict[str, Any] = {}
        for section, keys in OPEN_IN_GROUPS.items():
            for key in keys:
                path = [*section.split("."), key] if section else [key]
                if key in ("node_config", "docker") and not section:
                    continue
                if (value := self._from.take("available_node_types", kind, *path)) not in (
                    None,
                    [],
                    {},
                ):
                    _put(own, path, value)

        if own:
            self._ray.setdefault("available_node_types", {})[name] = own

    def _additions(self) -> None:
        for key in OPEN:
            if key in OPEN_BELOW or key == "available_node_types":
                continue
            if (value := self._from.take(key)) not in (None, [], {}):
                self._ray[key] = value

        for section, keys in OPEN_BELOW.items():
            for key in keys:
                if (value := self._from.take(section, key)) not in (None, [], {}):
                    _put(self._ray, [section, key], value)

        for theirs, ours in (("SubnetIds", "subnet"), ("SecurityGroupIds", "security_group")):
            if found := self._in_all(theirs, at_most=1):
                self._ec2[ours] = found[0]

        if profile := self._in_all("IamInstanceProfile"):
            arn = str(profile.get("Name") or profile.get("Arn", ""))
            self._ec2["instance_profile"] = PurePosixPath(arn).name

    def _started(self, key: str, name: str, groups: Sequence[dict[str, Any]]) -> None:
        """Take the parameters of `ray start`; Trainyard starts Ray itself, as Ray's examples do."""
        told: dict[str, str] = {}
        for line in self._from.take(key) or []:
            found = _of_ray_start(str(line))
            if found is None:
                self._notes.append(f"{key}: {line!r} goes into setup_commands, if it is needed")
            else:
                told |= found
        told = {each: value for each, value in told.items() if _OF_EXAMPLES.get(each) != value}
        ray_start, notes = placed(told, name)
        self._notes += notes
        if ray_start:
            for group in groups:
                group["ray_start"] = ray_start


def _of_ray_start(line: str) -> dict[str, str] | None:
    """Return the parameters of `ray start` in a command that starts or stops Ray, and does nothing
    else; or None.
    """
    told: dict[str, str] = {}
    every = commands(line)
    if not every:
        return None
    for words in every:
        if words[:2] == ["ray", "start"]:
            found = parameters(words[2:])
            if found is None:
                return None
            told |= found
        elif words[:2] not in (["ray", "stop"], ["ulimit", "-n"]):
            return None
    return told


def _put(document: dict[str, Any], path: list[str], value: object) -> None:
    for key in path[:-1]:
        document = document.setdefault(key, {})
    document[path[-1]] = value
