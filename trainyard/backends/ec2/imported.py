"""Convert an AWS file of `ray up` to a cluster file with the backend ec2.

Keys that only Ray knows are kept below `ec2.ray`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from itertools import count
from pathlib import PurePosixPath
from typing import Any

from trainyard.backends.shared.ray_start import (
    commands,
    is_for_a_shell,
    keyed,
    parameters,
    placed,
    resources,
)
from trainyard.backends.shared.taking import Taking, as_name
from trainyard.errors import RequestError
from trainyard.spec.ec2 import OPEN, OPEN_BELOW, OPEN_IN_GROUPS

# Ray's defaults (ray/autoscaler/aws/defaults.yaml).
_HEAD_TYPE = "ray.head.default"
_MAX_WORKERS = 2
# Ray's examples set this port. It is dropped, because nodes tell each other their ports.
_OF_EXAMPLES = {"object-manager-port": "8076"}
_EMPTY: tuple[object, ...] = (None, [], {})
# Instance families with GPUs (EC2 user guide, "Accelerated computing").
_MAY_HAVE_GPUS = re.compile(r"(?:p|g|gr)\d")
# The names of root devices. A disk by another name is a second one.
_ROOT_DEVICES = ("/dev/sda1", "/dev/xvda")
# EC2 resolves an AMI with this prefix; in a cluster file the parameter's name is enough.
_PARAMETER = "resolve:ssm:"
# Ray's word for its default AMI.
_NEWEST = "latest_dlami"
_STARTS_RAY = re.compile(r"\bray\s+start\b")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
# No worker group may be called so.
_OF_THE_HEAD = ("head", "headgroup")


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
        taken = [_group_name(kind) for kind in types]
        name = _free(f"{_group_name(head_type)}-workers", taken)
        types = {name: head, **types}
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


def _group_name(kind: str) -> str:
    return as_name(kind.removeprefix("ray."))


def _free(name: str, taken: Collection[str]) -> str:
    """Return a name, with a number if it is taken."""
    if name not in taken:
        return name
    numbered = (f"{name}-{number}" for number in count(2))
    return next(each for each in numbered if each not in taken)


class _Conversion:
    def __init__(self, document: Mapping[str, Any]) -> None:
        self._from = Taking(document)
        self._names = [*_OF_THE_HEAD]
        self._notes: list[str] = []
        self._ec2: dict[str, Any] = {}
        self._ray: dict[str, Any] = {}

    def run(self) -> tuple[dict[str, Any], list[str]]:
        """Return the cluster file, and a note for each key without a place.

        Raises RequestError without a valid head_node_type.
        """
        take = self._from.take
        name = self._name()
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
        self._most(workers)
        for kind, group in zip(kinds, workers, strict=True):
            own_image = take("available_node_types", kind, "docker", "worker_image")
            group_image = own_image or workers_image
            if group_image not in (None, image):
                group["image"] = group_image

        self._additions()
        self._network()
        self._started("head_start_ray_commands", "the head", [head])
        self._started("worker_start_ray_commands", "workers", workers)
        self._note_gpus({"head": head, **{group["name"]: group for group in workers}})
        if self._ray:
            self._ec2["ray"] = self._ray

        sections = {"image": image, "head": head, "workers": workers, "ec2": self._ec2}
        file: dict[str, Any] = {"name": name, "backend": "ec2"}
        file |= {key: value for key, value in sections.items() if value}
        for path in self._from.left():
            self._notes.append(f"{path}: has no place here")
        return file, self._notes

    def _name(self) -> str:
        written = str(self._from.take("cluster_name"))
        name = as_name(written)
        if name != written:
            self._notes.append(f"the cluster is called {name} here, not {written}")
        return name

    def _most(self, workers: Sequence[Mapping[str, Any]]) -> None:
        most = self._from.take("max_workers")
        total = sum(group.get("max", group.get("count", 0)) for group in workers)
        if most is not None and most < total:
            self._notes.append(f"max_workers {most}: here each group has its own maximum")

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
        if options := self._docker_options():
            self._ec2["docker_options"] = options
        return head or image, workers or image

    def _docker_options(self) -> list[str]:
        """Take `run_options` as words; what needs a shell becomes a note."""
        found: list[str] = []
        for entry in self._from.take("docker", "run_options") or []:
            words = _words(str(entry))
            if words is None:
                self._notes.append(
                    f"docker.run_options: {entry!r} needs a shell to expand it; Trainyard uses none"
                )
            else:
                found += words
        return found

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
        name = _free(_group_name(kind), self._names)
        self._names.append(name)
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

        if type_ := take(*place, "node_config", "InstanceType"):
            instances["instance_type"] = type_
        ami = str(take(*place, "node_config", "ImageId") or "").removeprefix(_PARAMETER)
        if ami.lower() == _NEWEST:
            self._notes.append(f"ImageId of {kind} is {ami}: without `ami`, Trainyard's default")
        elif ami:
            instances["ami"] = ami

        market = (*place, "node_config", "InstanceMarketOptions", "MarketType")
        if self._from.see(*market) == "spot":
            take(*market)
            instances["spot"] = True

        disks = (*place, "node_config", "BlockDeviceMappings")
        for index, disk in enumerate(self._from.see(*disks) or []):
            size = self._from.see(*disks, index, "Ebs", "VolumeSize")
            if size and disk.get("DeviceName") in _ROOT_DEVICES:
                take(*disks, index, "Ebs", "VolumeSize")
                take(*disks, index, "DeviceName")
                instances["disk"] = f"{size}GiB"

        return instances

    def _of_ray(self, kind: str, name: str) -> None:
        """Move the keys that only Ray knows to `ec2.ray`."""
        for section, keys in OPEN_IN_GROUPS.items():
            for key in keys:
                path = [*section.split("."), key] if section else [key]
                if path in (["node_config"], ["docker"]):
                    continue
                value = self._from.take("available_node_types", kind, *path)
                # In Ray, a type's empty list of commands replaces that of the document.
                if value not in _EMPTY or (value == [] and key.endswith("_commands")):
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

    def _network(self) -> None:
        """Take the subnet, security group and profile that all types share."""
        for theirs, ours in (("SubnetIds", "subnet"), ("SecurityGroupIds", "security_group")):
            ids = self._in_all(theirs, at_most=1)
            if ids:
                self._ec2[ours] = ids[0]
        if "subnet" in self._ec2 and self._ec2.pop("zones", None):
            self._notes.append("provider.availability_zone: follows from the subnet here")

        if profile := self._in_all("IamInstanceProfile"):
            arn = str(profile.get("Name") or profile.get("Arn", ""))
            self._ec2["instance_profile"] = PurePosixPath(arn).name

    def _started(self, key: str, name: str, groups: Sequence[dict[str, Any]]) -> None:
        """Move the parameters of start commands into the groups.

        Trainyard starts Ray itself, so other commands become a note.
        """
        options: dict[str, str] = {}
        for line in self._from.take(key) or []:
            of_line = _of_ray_start(str(line))
            if of_line is None:
                self._notes.append(
                    f"{key}: {line!r} is not read: Trainyard starts Ray itself; its parameters go "
                    "into ray_start, other commands into setup_commands"
                )
                continue

            of_ray, others = of_line
            options |= of_ray
            for other in others:
                place = "env" if other.startswith("export ") else "setup_commands"
                self._notes.append(f"{key}: {other!r} goes into {place}, if it is needed")

        for option, value in _OF_EXAMPLES.items():
            if options.get(option) == value:
                del options[option]

        own, options, notes = keyed(options, name)
        self._notes += notes
        ray_start, notes = placed(options, name)
        self._notes += notes
        if ray_start:
            own["ray_start"] = ray_start
        for group in groups:
            self._give(group, own, name)

    def _give(self, group: dict[str, Any], own: Mapping[str, Any], name: str) -> None:
        """Give a group the keys of start commands.

        Those of its node type win, as in Ray.
        """
        where = group.get("name", name)
        for key, value in own.items():
            before = group.get(key)
            if isinstance(value, dict):
                group[key] = dict(value)
                if before:
                    self._give_each(group[key], before, f"{key} of {where}")
            elif before is None:
                group[key] = value
            elif before != value:
                self._notes.append(_replaced(f"{key} of {where}", value, before))

    def _give_each(self, values: dict[str, Any], of_type: Mapping[str, Any], where: str) -> None:
        for key, value in of_type.items():
            if values.get(key, value) != value:
                self._notes.append(_replaced(f"{key} in {where}", values[key], value))
            values[key] = value

    def _note_gpus(self, groups: Mapping[str, Mapping[str, Any]]) -> None:
        instances = self._ec2.get("groups", {})
        for name, group in groups.items():
            type_ = instances.get(name, {}).get("instance_type", "")
            if "gpus" not in group and _MAY_HAVE_GPUS.match(type_):
                self._notes.append(
                    f"{name}: {type_} may have GPUs, which Ray found by itself; here `gpus` says "
                    "how many Ray gets, by default none"
                )


def _replaced(where: str, started: object, of_type: object) -> str:
    return f"{where} is {of_type}, not {started}: as in Ray, the node type decides"


def _words(option: str) -> list[str] | None:
    """Split an entry of `run_options`; None if it needs a shell."""
    try:
        words = shlex.split(option)
    except ValueError:
        return None
    if is_for_a_shell(option) or any(word.startswith("~") for word in words):
        return None
    return words


def _of_ray_start(line: str) -> tuple[dict[str, str], list[str]] | None:
    """Return a line's parameters of `ray start`, and its other commands.

    `ray stop` and `ulimit -n` are left out: Trainyard runs them too. Returns
    None if the line starts Ray in a way that is not understood.
    """
    parts = commands(line)
    if not parts:
        return None if _STARTS_RAY.search(line) else ({}, [line])

    options: dict[str, str] = {}
    others = []
    for words in parts:
        variables, command = _split(words)
        if command[:2] == ["ray", "start"]:
            of_part = parameters(command[2:])
            if of_part is None:
                return None
            options |= of_part
            others += [f"export {variable}" for variable in variables]
        elif _STARTS_RAY.search(" ".join(command)):
            return None
        elif command[:2] not in (["ray", "stop"], ["ulimit", "-n"]):
            others.append(" ".join(shlex.quote(word) if " " in word else word for word in words))
    return options, others


def _split(words: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Split a command's words into leading assignments and the rest."""
    for index, word in enumerate(words):
        if not _ASSIGNMENT.fullmatch(word):
            return words[:index], words[index:]
    return words, []


def _put(document: dict[str, Any], path: list[str], value: object) -> None:
    for key in path[:-1]:
        document = document.setdefault(key, {})
    document[path[-1]] = value
