"""Convert a cluster file to Ray's, for `ray up` and the autoscaler; pure."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from trainyard import paths, render, versions
from trainyard.backends.ec2 import naming
from trainyard.backends.ec2.location import Location
from trainyard.backends.shared import ray_nodes
from trainyard.errors import Problem, RequestError
from trainyard.seams import ecr
from trainyard.seams.docker.images import registry_of
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.groups import Head, WorkerGroup
from trainyard.spec.units import GIB
from trainyard.wording import named

# Fingerprints leave out these keys, which are paths on this machine: another machine may have other
# paths for the same cluster. The content of the files is in the fingerprint.
_PLACES = ("auth", "file_mounts")
# Keys whose change needs no new head: the autoscaler on a running head reads them from a new file.
_OF_WORKERS = ("max_workers", "upscaling_speed", "idle_timeout_minutes")
# The cluster file's keys for parameters of EC2 and Ray.
_WORDS = {
    "InstanceType": "instance_type",
    "ImageId": "ami",
    "VolumeSize": "disk",
    "InstanceMarketOptions": "spot",
    "SubnetId": "subnet",
    "SubnetIds": "subnet",
    "KeyName": "key_name",
    "CPU": "cpus",
    "GPU": "gpus",
}
# Keys of a node type whose change needs no new workers: the autoscaler applies it while workers
# run.
_OF_GROUPS = ("min_workers", "max_workers", "idle_timeout_s")


class Group(NamedTuple):
    """The head, or a worker group.

    `ami` is an id or an SSM parameter; `disk` is in bytes.
    """

    name: str
    least: int
    most: int
    size: Head | WorkerGroup
    instance_type: str
    ami: str
    disk: int
    spot: bool


@dataclass(frozen=True)
class Inputs:
    """The inputs of a launch that the cluster file lacks, mostly from AWS.

    `amis` are EC2's descriptions of AMIs, by their names in the file. `subnets`
    are ids of usable subnets; () if the file names a subnet. `image` is the
    head's image by digest, "" without containers. `images` has, by group, the
    images of groups that use another.
    """

    location: Location
    security_group: str
    amis: Mapping[str, Mapping[str, Any]]
    subnets: Sequence[str] = ()
    image: str = ""
    images: Mapping[str, str] = field(default_factory=dict)

    def image_of(self, group: str) -> str:
        return self.images.get(group, self.image)


def groups(spec: ClusterSpec) -> dict[str, Group]:
    by_name = {naming.HEAD: _group(spec, naming.HEAD, spec.head, least=1, most=1)}
    for worker in spec.workers:
        by_name[worker.name] = _group(
            spec, worker.name, worker, least=worker.least, most=worker.most
        )
    return by_name


def _group(
    spec: ClusterSpec, name: str, size: Head | WorkerGroup, *, least: int, most: int
) -> Group:
    instances = spec.ec2.instances(name)
    return Group(
        name=name,
        least=least,
        most=most,
        size=size,
        instance_type=instances.instance_type or "",
        ami=instances.ami or "",
        disk=instances.disk or 0,
        spot=bool(instances.spot),
    )


def document(spec: ClusterSpec, inputs: Inputs) -> dict[str, Any]:
    """Return the document for `ray up`: the template, merged with `ec2.ray`.

    Raises RequestError if a key of `ec2.ray` cannot be merged, adds a node type
    without a group in the file, or mounts a file that does not exist.
    """
    values = _values(spec, inputs)
    made = _rendered(values)
    for name, kind in made["available_node_types"].items():
        kind |= _commands(spec, inputs, values, name)
    result = _with_additions(made, spec.ec2.ray)
    unknown = sorted(result["available_node_types"].keys() - groups(spec).keys())
    if unknown:
        # Instances of such types would lack the cluster's tag, and `down` would miss them.
        raise RequestError(
            f"ec2.ray.available_node_types has {named(unknown)}, which the cluster file has no "
            "group for",
            hint="Make these groups under `workers:`; ec2.ray can then add settings to them.",
        )

    _tag_types(result)
    return result


def _commands(
    spec: ClusterSpec, inputs: Inputs, values: Mapping[str, Any], group: str
) -> dict[str, list[str]]:
    """Return Trainyard's commands for a node type that needs its own lists.

    In Ray, a node type's commands replace those of the whole document. Those
    that `ec2.ray` has for the node type are not included.
    """
    added = spec.ec2.added_to(group)
    image = inputs.images.get(group)
    if image:
        values = {**values, "images": [image], "registries": _registries(image)}

    commands: dict[str, list[str]] = {}
    if "initialization_commands" in added:
        commands["initialization_commands"] = _rendered(values)["initialization_commands"]
    elif image:
        of_all = spec.ec2.ray.get("initialization_commands", ())
        made = _rendered(values)["initialization_commands"]
        commands["initialization_commands"] = [*made, *of_all]
    if "worker_setup_commands" in added:
        commands["worker_setup_commands"] = _rendered(values)["setup_commands"]
    return commands


def _values(spec: ClusterSpec, inputs: Inputs) -> dict[str, Any]:
    section = spec.ec2
    location = inputs.location

    docker_options = [shlex.quote(option) for option in section.docker_options]
    if section.shm_size:
        docker_options.insert(0, f"--shm-size={section.shm_size}")

    images = []
    installed = []
    if inputs.image:
        images.append(inputs.image)
    else:
        installed.append(versions.RAY)

    head_options = []
    if spec.head.gpus:
        head_options.append("--gpus=all")

    head_start = ""
    if spec.head.ray_start:
        head_start = f" {_start_options(spec.head)}"

    return {
        "name": spec.name,
        "max_workers": sum(group.most for group in spec.workers),
        "provider": _provider(spec, location),
        "auth": {"ssh_user": section.user, "ssh_private_key": str(location.key_file)},
        "nodes": [_node(spec, inputs, group) for group in groups(spec).values()],
        "mounted": str(location.mounted),
        "files": files(inputs.image),
        "images": images,
        "registries": _registries(inputs.image),
        "installed": installed,
        "container": naming.resource(spec.name),
        "docker_options": docker_options,
        "head_options": head_options,
        "head_start": head_start,
        "worker_start": _start_of_workers(spec),
    }


def _rendered(values: Mapping[str, Any]) -> dict[str, Any]:
    template = (paths.shipped("ray_autoscaler") / "cluster.yaml.j2").read_text(encoding="utf-8")
    document: dict[str, Any] = yaml.safe_load(render.render(template, values))
    return document


def _provider(spec: ClusterSpec, location: Location) -> dict[str, Any]:
    provider: dict[str, Any] = {
        "type": "aws",
        "region": location.aws.region,
        "cache_stopped_nodes": False,
        "use_internal_ips": spec.ec2.use_internal_ips,
    }
    if spec.ec2.zones:
        provider["availability_zone"] = ",".join(spec.ec2.zones)
    return provider


def _with_additions(made: dict[str, Any], added: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document merged with `ec2.ray`.

    Raises RequestError if files to mount do not exist.
    """
    mounts = added.get("file_mounts")
    if not isinstance(mounts, dict):
        return _merged(made, added)

    problems = []
    for place, source in mounts.items():
        if isinstance(source, str) and not Path(source).expanduser().exists():
            message = f"no such file or directory here: {source}"
            problems.append(Problem(f"ec2.ray.file_mounts.{place}", message))
    if problems:
        raise RequestError(
            "some files for the nodes are not on this machine", problems=tuple(problems)
        )
    return _merged(made, added)


def _tag_types(document: Mapping[str, Any]) -> None:
    """Tag each node type with its fingerprint, which shows outdated workers."""
    for kind in document["available_node_types"].values():
        fixed = {key: value for key, value in kind.items() if key not in _OF_GROUPS}
        _instance_tags(kind).extend(naming.pairs({naming.NODE_FROM: _fingerprint(fixed)}))


def node_from(document: Mapping[str, Any], group: str) -> str:
    """Return a group's fingerprint in a document; "" for an unknown group."""
    kind = document["available_node_types"].get(group)
    if kind:
        return naming.read(_instance_tags(kind))[naming.NODE_FROM]
    return ""


def policy(name: str, role: str) -> str:
    """Render the head's IAM policy; `role` is the ARN of the head's role."""
    template = (paths.shipped("ray_autoscaler") / "policy.json.j2").read_text(encoding="utf-8")
    return render.render(template, {"name": name, "role": role})


def files(image: str) -> str:
    """Return the path on a node of the directory with the token and variables.

    `image` is "" without containers. In a container, Ray may guess the home
    directory wrong, so another directory is used.
    """
    return "/run/trainyard" if image else "~/.trainyard"


def environment(spec: ClusterSpec, image: str) -> str:
    """Return the text of the file that every shell on a node loads.

    The file exports Ray's settings, the cluster file's `env`, the token's path,
    and PATH.
    """
    variables = {"RAY_AUTH_MODE": "token", **ray_nodes.settings(), **spec.env}
    lines = [f"export {name}={shlex.quote(value)}" for name, value in sorted(variables.items())]
    # Ray runs commands in login shells, where /etc/profile replaces the image's PATH. Process 1 of
    # a container still has the image's PATH.
    if image:
        path = "$(tr '\\0' '\\n' </proc/1/environ | sed -n 's/^PATH=//p')"
    else:
        path = "$PATH:$HOME/.local/bin"
    token = f"{files(image).replace('~', '$HOME')}/token"
    lines += [f'export RAY_AUTH_TOKEN_PATH="{token}"', f'export PATH="{path}"']
    return "\n".join([*lines, ""])


def fingerprints(made: Mapping[str, Any], environment_text: str) -> dict[str, str]:
    """Return a head's tags: fingerprints of the document and of `of_head`.

    Both fingerprints include the environment's text.
    """
    whole = {key: value for key, value in made.items() if key not in _PLACES}
    return {
        naming.MADE_FROM: _fingerprint(whole, environment_text),
        naming.HEAD_FROM: _fingerprint(of_head(made), environment_text),
    }


def of_head(made: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a document whose change needs a new head."""
    left_out = _PLACES + _OF_WORKERS
    head = {key: value for key, value in made.items() if key not in left_out}
    return head | {"available_node_types": made["available_node_types"]["head"]}


def differences(before: Any, after: Any, at: Sequence[str] = ()) -> Iterator[str]:
    """Yield where two documents differ, if possible by a cluster file's keys.

    Tags are not compared. Long values are not shown.
    """
    if isinstance(before, dict) and isinstance(after, dict):
        for key in {**before, **after}:
            yield from differences(before.get(key), after.get(key), (*at, key))
        return

    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for old, new in zip(before, after, strict=True):
            yield from differences(old, new, at)
        return

    if before == after or "TagSpecifications" in at:
        return

    name = _WORDS.get(at[-1], ".".join(at))
    values = f"{before} now, {after} desired"
    if len(values) < 300:
        yield f"{name}: {values}"
    else:
        yield f"{name} differs"


def _fingerprint(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def _instance_tags(kind: Mapping[str, Any]) -> list[dict[str, str]]:
    tags: list[dict[str, str]] = kind["node_config"]["TagSpecifications"][0]["Tags"]
    return tags


def _node(spec: ClusterSpec, inputs: Inputs, group: Group) -> dict[str, Any]:
    size = group.size
    resources = {"CPU": size.cpus, "memory": size.memory, "GPU": size.gpus, **size.resources}
    node = {
        "name": group.name,
        # Ray counts only workers here, so the head's numbers are 0.
        "min": 0,
        "max": 0,
        # For a resource that is left out, Ray takes the instance type's amount.
        "resources": {key: value for key, value in resources.items() if value is not None},
        "labels": {"ray.io/node-group": group.name, **size.labels},
        "idle": [],
        "docker": [],
        "config": _launch(spec, inputs, group),
    }

    if isinstance(size, WorkerGroup):
        node |= {"min": group.least, "max": group.most, "docker": _docker(inputs, group)}
        if size.idle_timeout is not None:
            node["idle"] = [size.idle_timeout]

    return node


def _docker(inputs: Inputs, group: Group) -> list[dict[str, Any]]:
    """Return a list with the group's own Docker section, or []."""
    section: dict[str, Any] = {}
    if group.name in inputs.images:
        section["worker_image"] = inputs.images[group.name]
    if inputs.image and group.size.gpus:
        section["worker_run_options"] = ["--gpus=all"]
    return [section] if section else []


def _registries(image: str) -> list[dict[str, str]]:
    """Return the image's registry if AWS gives the login (ECR), else []."""
    if not image:
        return []
    registry = registry_of(image)
    region = ecr.region(registry)
    if not region:
        return []
    return [{"address": registry, "region": region}]


def _start_options(size: Head | WorkerGroup) -> str:
    """Return the file's options of `ray start` for a group, in shell quotes."""
    return shlex.join(ray_nodes.own_arguments(size.ray_start))


def _start_of_workers(spec: ClusterSpec) -> str:
    """Return shell code that sets $@ to the options of the worker's group.

    The autoscaler has one start command for all groups, so that command must
    choose. Returns "" if no group has options.
    """
    cases = []
    for group in spec.workers:
        if group.ray_start:
            cases.append(f"{group.name}) set -- {_start_options(group)} ;;")
    if cases:
        return f'set --; case "$RAY_NODE_TYPE_NAME" in {" ".join(cases)} esac; '
    return ""


def _launch(spec: ClusterSpec, inputs: Inputs, group: Group) -> dict[str, Any]:
    """Return the parameters of RunInstances (AWS API reference)."""
    ami = {"ImageId": group.ami, "RootDeviceName": "/dev/sda1", **inputs.amis.get(group.ami, {})}
    volume = {
        "VolumeSize": -(-group.disk // GIB),
        "VolumeType": "gp3",
        "DeleteOnTermination": True,
    }
    config: dict[str, Any] = {
        "InstanceType": group.instance_type,
        "ImageId": ami["ImageId"],
        "KeyName": inputs.location.key_name,
        "IamInstanceProfile": {"Name": inputs.location.profile},
        "BlockDeviceMappings": [{"DeviceName": ami["RootDeviceName"], "Ebs": volume}],
        # A container is one hop further from the metadata service than its host.
        "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 2},
        "TagSpecifications": _tag_specifications(spec, inputs, group),
    }

    if spec.ec2.subnet:
        interface = {
            "DeviceIndex": 0,
            "SubnetId": spec.ec2.subnet,
            "Groups": [inputs.security_group],
            "DeleteOnTermination": True,
            "AssociatePublicIpAddress": not spec.ec2.use_internal_ips,
        }
        config["NetworkInterfaces"] = [interface]
    else:
        config["SecurityGroupIds"] = [inputs.security_group]
        # Without these ids Ray would use all subnets of the VPC (aws/config.py, _configure_subnet),
        # and would replace the head whenever the VPC's subnets change.
        config["SubnetIds"] = [*inputs.subnets]

    if group.spot:
        config["InstanceMarketOptions"] = {"MarketType": "spot"}

    return config


def _tag_specifications(spec: ClusterSpec, inputs: Inputs, group: Group) -> list[dict[str, Any]]:
    tags = {**spec.ec2.tags, naming.CLUSTER: spec.name, naming.OWNER: inputs.location.owner}
    instance_tags = {**tags, naming.AMI: group.ami}
    image = inputs.image_of(group.name)
    if image:
        instance_tags[naming.IMAGE] = image
    if inputs.subnets:
        instance_tags[naming.SUBNETS] = " ".join(inputs.subnets)

    return [
        {"ResourceType": "instance", "Tags": naming.pairs(instance_tags)},
        {"ResourceType": "volume", "Tags": naming.pairs(tags)},
        {"ResourceType": "network-interface", "Tags": naming.pairs(tags)},
    ]


def _merged(made: dict[str, Any], added: Mapping[str, Any], at: str = "ec2.ray") -> dict[str, Any]:
    """Return a document with additions.

    Mappings are merged, lists are appended, and other values are replaced.
    Raises RequestError if the addition to a mapping or list has another type.
    """
    result = deepcopy(made)
    for key, value in added.items():
        before = result.get(key)
        if isinstance(before, dict) and isinstance(value, dict):
            result[key] = _merged(before, value, f"{at}.{key}")
        elif isinstance(before, list) and isinstance(value, list):
            result[key] = [*before, *value]
        elif isinstance(before, dict | list):
            expected = "keys" if isinstance(before, dict) else "a list"
            raise RequestError(f"{at}.{key} must be {expected}, not {value!r}")
        else:
            result[key] = value

    return result
