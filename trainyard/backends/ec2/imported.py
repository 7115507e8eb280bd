"""Convert an AWS file of `ray up` to a cluster file with the backend ec2.

Keys that only Ray knows are kept below `ec2.ray`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from trainyard.backends.shared.ray_start import commands, parameters, placed, resources
from trainyard.backends.shared.taking import Taking, as_name
from trainyard.errors import RequestError
from trainyard.spec.ec2 import OPEN, OPEN_BELOW, OPEN_IN_GROUPS

# Ray's defaults (ray/autoscaler/aws/defaults.yaml).
_HEAD_TYPE = "ray.head.default"
_MAX_WORKERS = 2
# Ray's examples set this port. It is dropped, because nodes tell each other their ports.
_OF_EXAMPLES = {"object-manager-port": "8076"}
_EMPTY: tuple[object, ...] = (None, [], {})


def is_one(document: Mapping[str, Any]) -> bool:
    return "cluster_name" in document and isinstance(document.get("provider"), dict)


def convert(document: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return a cluster file, and notes on dropped, moved or added keys.

    Raises RequestError for another cloud than AWS, and for the format of Ray
    before 1.2 (head_node).
    """
    _refuse_other_files(document)
    types: dict[str, dict[str, Any]] = {}
    for name, kind in document["available_node_types"].items():
        types[name] = _with_plain_network(kind)

    defaults: dict[str, Any] = {}
    notes = []
    if "head_node_type" not in document and _HEAD_TYPE in types:
        defaults["head_node_type"] = _HEAD_TYPE

    are_bound = all("max_workers" in kind for kind in types.values())
    if document.get("max_workers") is None and not are_bound:
        defaults["max_workers"] = _MAX_WORKERS
        notes.append(f"max_workers is {_MAX_WORKERS} where the file has none, Ray's default")

    document = {**document, **defaults}
    head_type = str(document.get("head_node_type"))
    head = types.get(head_type, {})
    # The head's type makes workers only if it sets one of these: Ray's default is no workers.
    makes_workers = head.get("max_workers") or head.get("min_workers")
    if makes_workers and document.get("max_workers") != 0:
        name = f"{as_name(head_type.removeprefix('ray.'))}-workers"
        types[name] = head
        notes.append(f"node type {head_type} has workers, too: they are group {name} here")

    content, other_notes = _Conversion({**document, "available_node_types": types}).run()
    return content, notes + other_notes


def _refuse_other_files(document: Mapping[str, Any]) -> None:
    provider = document["provider"].get("type")
    if provider != "aws":
        hint = (
            "Trainyard can use a cluster that runs there: trainyard cluster.new NAME --backend "
            "existing."
        )
        raise RequestError(
            f"the file is for {provider}, but Trainyard makes instances only on AWS", hint=hint
        )

    if "available_node_types" in document:
        return

    if document.keys() & {"head_node", "worker_nodes"}:
        hint = (
            "Ray itself no longer accepts such a file: write available_node_types, as in Ray's "
            "examples."
        )
    else:
        hint = (
            "Without them, Ray chooses node types itself: write available_node_types, as in Ray's "
            "examples."
        )
    raise RequestError("the file has no available_node_types", hint=hint)


def _with_plain_network(kind: Mapping[str, Any]) -> dict[str, Any]:
    """Replace a single network interface by SubnetIds and SecurityGroupIds.

    A type with several interfaces, or with one of these keys, stays unchanged.
    """
    config = {**(kind.get("node_config") or {})}
    interfaces = config.get("NetworkInterfaces") or []
    if len(interfaces) != 1 or config.keys() & {"SubnetIds", "SecurityGroupIds"}:
        return {**kind}

    interface = dict(interfaces[0])
    if interface.get("DeviceIndex") == 0:
        del interface["DeviceIndex"]

    subnet = interface.pop("SubnetId", None)
    if subnet:
        config["SubnetIds"] = [subnet]

    groups = interface.pop("Groups", None)
    if groups:
        config["SecurityGroupIds"] = groups

    config["NetworkInterfaces"] = [interface] if interface else []
    return {**kind, "node_config": config}


class _Conversion:
    def __init__(self, document: Mapping[str, Any]) -> None:
        self._from = Taking(document)
        self._notes: list[str] = []
        self._ec2: dict[str, Any] = {}
        self._ray: dict[str, Any] = {}

    def run(self) -> tuple[dict[str, Any], list[str]]:
        """Return the cluster file, and a note for each key without a place.

        Raises RequestError without a valid head_node_type.
        """
        take = self._from.take
        written = str(take("cluster_name"))
        name = as_name(written)
        if name != written:
            self._notes.append(f"the cluster is called {name} here, not {written}")

        self._provider()
        self._login()
        image, workers_image = self._images()
        idle = take("idle_timeout_minutes")
        head_type = self._head_type()
        head = self._group(head_type, "head")
        for key in ("min_workers", "max_workers"):
            take("available_node_types", head_type, key)

        kinds = [kind for kind in self._from.see("available_node_types") if kind != head_type]
        workers = [self._workers(kind, idle=idle) for kind in kinds]
        most = take("max_workers")
        total = sum(group.get("max", group.get("count", 0)) for group in workers)
        if most is not None and most < total:
            self._notes.append(f"max_workers {most}: here each group has its own maximum")

        for kind, group in zip(kinds, workers, strict=True):
            own_image = take("available_node_types", kind, "docker", "worker_image")
            group_image = own_image or workers_image
            if group_image not in (None, image):
                group["image"] = group_image

        self._additions()
        self._started("head_start_ray_commands", "the head", [head])
        self._started("worker_start_ray_commands", "workers", workers)
        if self._ray:
            self._ec2["ray"] = self._ray

        sections = {"image": image, "head": head, "workers": workers, "ec2": self._ec2}
        file: dict[str, Any] = {"name": name, "backend": "ec2"}
        file |= {key: value for key, value in sections.items() if value}
        for path in self._from.left():
            self._notes.append(f"{path}: has no place here")
        return file, self._notes

    def _head_type(self) -> str:
        head_type = self._from.take("head_node_type")
        types = list(self._from.see("available_node_types"))
        if head_type in types:
            return str(head_type)

        if head_type:
            wrong = f"head_node_type {head_type!r} is none of"
        else:
            wrong = "the file has no head_node_type, one of"
        raise RequestError(f"{wrong} available_node_types: {', '.join(types)}")

    def _provider(self) -> None:
        take = self._from.take
        take("provider", "type")
        # Ray's default True would stop instances; Trainyard always terminates them.
        if take("provider", "cache_stopped_nodes") is not False:
            note = "provider.cache_stopped_nodes: instances are terminated, not stopped"
            self._notes.append(note)

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
        key_file = self._from.see("auth", "ssh_private_key")
        key_name = self._in_all("KeyName") if key_file else None
        if key_name:
            self._from.take("auth", "ssh_private_key")
            self._ec2 |= {"key_name": key_name, "key_file": key_file}

    def _images(self) -> tuple[str | None, str | None]:
        take = self._from.take
        image = take("docker", "image")
        head = take("docker", "head_image")
        workers = take("docker", "worker_image")
        take("docker", "container_name")
        if options := take("docker", "run_options"):
            self._ec2["docker_options"] = options
        return head or image, workers or image

    def _in_all(self, key: str, *, at_most: int | None = None) -> Any:
        """Take and return a value that is the same in all node types.

        If the types differ, or a list has more than `at_most` items, take
        nothing and return None.
        """
        paths = []
        for kind in self._from.see("available_node_types"):
            paths.append(("available_node_types", kind, "node_config", key))

        shared = self._from.see(*paths[0])
        if shared is None or any(self._from.see(*path) != shared for path in paths):
            return None
        if at_most is not None and len(shared) > at_most:
            return None

        for path in paths:
            self._from.take(*path)
        return shared

    def _workers(self, kind: str, *, idle: float | None) -> dict[str, Any]:
        name = as_name(kind.removeprefix("ray."))
        if name != kind:
            self._notes.append(f"node type {kind} is group {name} here")

        least = self._from.take("available_node_types", kind, "min_workers") or 0
        own_most = self._from.take("available_node_types", kind, "max_workers")
        # At least one bound is set: `convert` fills in Ray's default if both are missing.
        bounds = (own_most, self._from.see("max_workers"))
        most = min(bound for bound in bounds if bound is not None)

        group: dict[str, Any] = {"name": name}
        if most > least:
            group |= {"min": least, "max": most}
            if idle:
                group["idle_timeout"] = f"{idle:g}m"
        else:
            group["count"] = least
        return {**group, **self._group(kind, name)}

    def _group(self, kind: str, name: str) -> dict[str, Any]:
        """Return a group's resources and labels.

        Puts settings of its instances (type, AMI, disk, spot) into
        `ec2.groups`, and keys that only Ray knows into `ec2.ray`.
        """
        amounts = self._from.take("available_node_types", kind, "resources") or {}
        group, notes = resources(amounts, kind)
        self._notes += notes
        if labels := self._from.take("available_node_types", kind, "labels"):
            group["labels"] = labels
        if instances := self._instances(kind):
            self._ec2.setdefault("groups", {})[name] = instances
        self._of_ray(kind, name)
        return group

    def _instances(self, kind: str) -> dict[str, Any]:
        """Take a node type's settings for `ec2.groups`."""
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
        """Move the keys that only Ray knows to `ec2.ray`."""
        for section, keys in OPEN_IN_GROUPS.items():
            for key in keys:
                path = [*section.split("."), key] if section else [key]
                if path in (["node_config"], ["docker"]):
                    continue
                value = self._from.take("available_node_types", kind, *path)
                if value not in _EMPTY:
                    _put(self._ray, ["available_node_types", name, *path], value)

    def _additions(self) -> None:
        for key in OPEN:
            if key in OPEN_BELOW or key == "available_node_types":
                continue
            value = self._from.take(key)
            if value not in _EMPTY:
                self._ray[key] = value

        for section, keys in OPEN_BELOW.items():
            for key in keys:
                value = self._from.take(section, key)
                if value not in _EMPTY:
                    _put(self._ray, [section, key], value)

        for theirs, ours in (("SubnetIds", "subnet"), ("SecurityGroupIds", "security_group")):
            ids = self._in_all(theirs, at_most=1)
            if ids:
                self._ec2[ours] = ids[0]

        if profile := self._in_all("IamInstanceProfile"):
            arn = str(profile.get("Name") or profile.get("Arn", ""))
            self._ec2["instance_profile"] = PurePosixPath(arn).name

    def _started(self, key: str, name: str, groups: Sequence[dict[str, Any]]) -> None:
        """Move the parameters of start commands into the groups' `ray_start`.

        Trainyard starts Ray itself, so a command that does anything else
        becomes a note.
        """
        options: dict[str, str] = {}
        for line in self._from.take(key) or []:
            of_line = _of_ray_start(str(line))
            if of_line is None:
                self._notes.append(f"{key}: {line!r} goes into setup_commands, if it is needed")
            else:
                options |= of_line

        for option, value in _OF_EXAMPLES.items():
            if options.get(option) == value:
                del options[option]
        ray_start, notes = placed(options, name)
        self._notes += notes
        if ray_start:
            for group in groups:
                group["ray_start"] = ray_start


def _of_ray_start(line: str) -> dict[str, str] | None:
    """Return a line's parameters of `ray start`; None if it has other commands.

    `ray stop` and `ulimit -n` may be in the line: Trainyard runs them too.
    """
    options: dict[str, str] = {}
    parts = commands(line)
    if not parts:
        return None

    for words in parts:
        if words[:2] == ["ray", "start"]:
            of_part = parameters(words[2:])
            if of_part is None:
                return None
            options |= of_part
        elif words[:2] not in (["ray", "stop"], ["ulimit", "-n"]):
            return None
    return options


def _put(document: dict[str, Any], path: list[str], value: object) -> None:
    for key in path[:-1]:
        document = document.setdefault(key, {})
    document[path[-1]] = value
