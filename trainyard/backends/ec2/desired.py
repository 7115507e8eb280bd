"""From a cluster file to the file that Ray's autoscaler gets; pure."""

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
from trainyard.spec.ray_nodes import start_options
from trainyard.spec.units import GIB
from trainyard.wording import named

# Who knows the cluster may also know where the files are; what they hold is in the fingerprint
# anyway.
_PLACES = ("auth", "file_mounts")
# What the autoscaler on a running head takes over from a new file.
_OF_WORKERS = ("max_workers", "upscaling_speed", "idle_timeout_minutes")
# Parameters of EC2 and of Ray, as the cluster file calls them.
_WORDS = {
    "InstanceType": "instance_type",
    "ImageId": "ami",
    "VolumeSize": "disk",
    "InstanceMarketOptions": "spot",
}
_WORDS |= {
    "SubnetId": "subnet",
    "SubnetIds": "subnet",
    "KeyName": "key_name",
    "CPU": "cpus",
    "GPU": "gpus",
}
# What it takes over for nodes that run.
_OF_GROUPS = ("min_workers", "max_workers", "idle_timeout_s")


class Group(NamedTuple):
    """Nodes that are alike, or the head: how few and many, and of what. `ami`: an id or a parameter
    of SSM; bytes.
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
class Site:
    """What instances are launched with, as it is in the account.

    `amis` are as EC2 describes them, by what the file calls them. `subnets` are where nodes may be
    if it names none. `image` is a reference by digest, "" where training runs on the host; `images`
    are those of groups that run another one than the head.
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
    """Return the head, and the groups of workers, by name."""
    sizes: dict[str, Head | WorkerGroup] = {
        naming.HEAD: spec.head,
        **{group.name: group for group in spec.workers},
    }
    found = {}

    for name, size in sizes.items():
        if isinstance(size, WorkerGroup):
            least, most = (size.least, size.most)
        else:
            least, most = (1, 1)
        kind = spec.ec2.instances(name)
        own = kind.instance_type or "", kind.ami or "", kind.disk or 0, bool(kind.spot)
        found[name] = Group(name, least, most, size, *own)

    return found


def document(spec: ClusterSpec, site: Site) -> dict[str, Any]:
    """Return what `ray up` gets: the template, and what the cluster file adds. Raises
    RequestError.
    """
    section = spec.ec2
    location = site.location
    shm_size = [f"--shm-size={section.shm_size}"] if section.shm_size else []
    values = {
        "name": spec.name,
        "max_workers": sum(group.most for group in spec.workers),
        "provider": _provider(spec, location),
        "auth": {"ssh_user": section.user, "ssh_private_key": str(location.key_file)},
        "nodes": [_node(spec, site, group) for group in groups(spec).values()],
        "mounted": str(location.mounted),
        "files": files(site.image),
        "images": [site.image] if site.image else [],
        "registries": _registries(site.image),
        "installed": [] if site.image else [versions.RAY],
        "container": naming.resource(spec.name),
        "docker_options": [*shm_size, *map(shlex.quote, section.docker_options)],
        "head_options": ["--gpus=all"] if spec.head.gpus else [],
        "head_start": f" {_start_options(spec.head)}" if spec.head.ray_start else "",
        "worker_start": _start_of_workers(spec),
    }

    result = _with_additions(_rendered(values), section.ray)
    if unknown := sorted({*result["available_node_types"]} - {*groups(spec)}):
        # Their instances would carry none of our tags, and stay.
        raise RequestError(
            f"ec2.ray.available_node_types has {named(unknown)}, which the cluster file has no "
            "group for",
            hint="Name them under `workers:`; ec2.ray can then add to them.",
        )

    for name, image in site.images.items():
        # It takes the place of what is said for all.
        own = {**values, "images": [image], "registries": _registries(image)}
        commands = _rendered(own)["initialization_commands"]
        kind = result["available_node_types"][name]
        kind["initialization_commands"] = [
            *commands,
            *section.ray.get("initialization_commands", ()),
        ]

    _tag_types(result)
    return result


def _rendered(values: Mapping[str, Any]) -> dict[str, Any]:
    template = (paths.shipped("ray_autoscaler") / "cluster.yaml.j2").read_text(encoding="utf-8")
    document: dict[str, Any] = yaml.safe_load(render.render(template, values))
    return document


def _provider(spec: ClusterSpec, location: Location) -> dict[str, Any]:
    provider: dict[str, Any] = {
        "type": "aws",
        "region": location.aws.region,
        "cache_stopped_nodes": False,
    }
    provider["use_internal_ips"] = spec.ec2.use_internal_ips
    if spec.ec2.zones:
        provider["availability_zone"] = ",".join(spec.ec2.zones)
    return provider


def _with_additions(made: dict[str, Any], added: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document with what `ec2.ray` adds. Raises RequestError, also for files that are not
    on this machine.
    """
    mounts = added.get("file_mounts")
    problems = []
    for place, source in mounts.items() if isinstance(mounts, dict) else ():
        if isinstance(source, str) and not Path(source).expanduser().exists():
            problems.append(
                Problem(f"ec2.ray.file_mounts.{place}", f"no such file or directory here: {source}")
            )
    if problems:
        raise RequestError("files for the nodes are not here", problems=tuple(problems))
    return _merged(made, added)


def _tag_types(document: Mapping[str, Any]) -> None:
    """Give the instances of each group the tag of what they are made from."""
    for kind in document["available_node_types"].values():
        made_from = _fingerprint(
            {key: value for key, value in kind.items() if key not in _OF_GROUPS}
        )
        _instance_tags(kind).extend(naming.pairs({naming.NODE_FROM: made_from}))


def node_from(document: Mapping[str, Any], group: str) -> str:
    """Return the tag of what the instances of a group are made from, "" if the document has no such
    group.
    """
    kind = document["available_node_types"].get(group)
    if kind:
        return naming.read(_instance_tags(kind))[naming.NODE_FROM]
    return ""


def policy(name: str, role: str) -> str:
    """Return what the head may do in the account; `role` is the ARN of its own role."""
    template = (paths.shipped("ray_autoscaler") / "policy.json.j2").read_text(encoding="utf-8")
    return render.render(template, {"name": name, "role": role})


def files(image: str) -> str:
    """Return where token and variables are on a node: of a container Ray guesses the home, and may
    be wrong.
    """
    return "/run/trainyard" if image else "~/.trainyard"


def environment(spec: ClusterSpec, image: str) -> str:
    """Return the file by which every shell on a node knows how Ray is set, and the variables of the
    cluster file.
    """
    variables = {"RAY_AUTH_MODE": "token", **ray_nodes.settings(), **spec.env}
    lines = [f"export {name}={shlex.quote(value)}" for name, value in sorted(variables.items())]
    # Ray runs commands in login shells, for which /etc/profile takes the image's own PATH away.
    if image:
        path = "$(tr '\\0' '\\n' </proc/1/environ | sed -n 's/^PATH=//p')"
    else:
        path = "$PATH:$HOME/.local/bin"
    token = f"{files(image).replace('~', '$HOME')}/token"
    lines += [f'export RAY_AUTH_TOKEN_PATH="{token}"', f'export PATH="{path}"']
    return "\n".join([*lines, ""])


def fingerprints(made: Mapping[str, Any], environment_text: str) -> dict[str, str]:
    """Return the tags of a head that was made from a document: of all of it, and of what needs a
    new head.
    """
    whole = {key: value for key, value in made.items() if key not in _PLACES}
    return {
        naming.MADE_FROM: _fingerprint(whole, environment_text),
        naming.HEAD_FROM: _fingerprint(of_head(made), environment_text),
    }


def of_head(made: Mapping[str, Any]) -> dict[str, Any]:
    """Return that part of a document that needs a new head if it changes."""
    head = {key: value for key, value in made.items() if key not in (*_PLACES, *_OF_WORKERS)}
    return head | {"available_node_types": made["available_node_types"]["head"]}


def differences(before: Any, after: Any, at: Sequence[str] = ()) -> Iterator[str]:
    """Yield where two documents of a head differ, by the words of the cluster file where it has
    one.
    """
    if isinstance(before, dict) and isinstance(after, dict):
        for key in {**before, **after}:
            yield from differences(before.get(key), after.get(key), (*at, key))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for old, new in zip(before, after, strict=True):
            yield from differences(old, new, at)
    elif before != after and "TagSpecifications" not in at:
        name = _WORDS.get(at[-1], ".".join(at))
        values = f"{before} now, {after} desired"
        yield f"{name}: {values}" if len(values) < 300 else f"{name} differs"


def _fingerprint(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def _instance_tags(kind: Mapping[str, Any]) -> list[dict[str, str]]:
    tags: list[dict[str, str]] = kind["node_config"]["TagSpecifications"][0]["Tags"]
    return tags


def _node(spec: ClusterSpec, site: Site, group: Group) -> dict[str, Any]:
    size = group.size
    is_head = group.name == naming.HEAD
    idle = None

    if isinstance(size, WorkerGroup):
        idle = size.idle_timeout

    resources = {"CPU": size.cpus, "memory": size.memory, "GPU": size.gpus, **size.resources}
    return {
        "name": group.name,
        # Of workers: Ray counts no head.
        "min": 0 if is_head else group.least,
        "max": 0 if is_head else group.most,
        # What is left out Ray takes from the instance type.
        "resources": {key: value for key, value in resources.items() if value is not None},
        "labels": {"ray.io/node-group": group.name, **size.labels},
        "idle": [] if idle is None else [idle],
        "docker": [] if is_head else _docker(site, group),
        "config": _launch(spec, site, group),
    }


def _docker(site: Site, group: Group) -> list[dict[str, Any]]:
    """Return what Docker is told of the workers of a group, if it is anything of their own."""
    told: dict[str, Any] = {}
    if group.name in site.images:
        told["worker_image"] = site.images[group.name]
    if site.image and group.size.gpus:
        told["worker_run_options"] = ["--gpus=all"]
    return [told] if told else []


def _registries(image: str) -> list[dict[str, str]]:
    """Return the registry of an image, if AWS gives its logins."""
    registry = registry_of(image) if image else ""
    region = ecr.region(registry)
    if region:
        return [{"address": registry, "region": region}]
    return []


def _start_options(size: Head | WorkerGroup) -> str:
    """Return what the file gives `ray start` on the nodes of a group, as words of a shell."""
    given = start_options(size.ray_start)
    return shlex.join(
        f"--{name}" if value is None else f"--{name}={value}" for name, value in given.items()
    )


def _start_of_workers(spec: ClusterSpec) -> str:
    """Return the shell's words that make each group's options its arguments: the autoscaler has one
    command for all.
    """
    cases = []
    for group in spec.workers:
        if group.ray_start:
            cases.append(f"{group.name}) set -- {_start_options(group)} ;;")
    if cases:
        return f'set --; case "$RAY_NODE_TYPE_NAME" in {" ".join(cases)} esac; '
    return ""


def _launch(spec: ClusterSpec, site: Site, group: Group) -> dict[str, Any]:
    """Return the parameters of RunInstances (AWS API reference)."""
    ami = {"ImageId": group.ami, "RootDeviceName": "/dev/sda1", **site.amis.get(group.ami, {})}
    volume = {
        "VolumeSize": -(-group.disk // GIB),
        "VolumeType": "gp3",
        "DeleteOnTermination": True,
    }

    tags = {**spec.ec2.tags, naming.CLUSTER: spec.name, naming.OWNER: site.location.owner}
    own = {
        naming.AMI: group.ami,
        naming.IMAGE: site.image_of(group.name),
        naming.SUBNETS: " ".join(site.subnets),
    }

    own = {key: value for key, value in own.items() if value}
    config: dict[str, Any] = {
        "InstanceType": group.instance_type,
        "ImageId": ami["ImageId"],
        "KeyName": site.location.key_name,
        "IamInstanceProfile": {"Name": site.location.profile},
        "BlockDeviceMappings": [{"DeviceName": ami["RootDeviceName"], "Ebs": volume}],
        # Containers are one hop further from the metadata service than their host.
        "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 2},
        "TagSpecifications": [
            {"ResourceType": "instance", "Tags": naming.pairs(tags | own)},
            *(
                {"ResourceType": kind, "Tags": naming.pairs(tags)}
                for kind in ("volume", "network-interface")
            ),
        ],
    }

    if spec.ec2.subnet:
        interface = {"DeviceIndex": 0, "SubnetId": spec.ec2.subnet, "Groups": [site.security_group]}
        interface["DeleteOnTermination"] = True
        interface["AssociatePublicIpAddress"] = not spec.ec2.use_internal_ips
        config["NetworkInterfaces"] = [interface]
    else:
        config["SecurityGroupIds"] = [site.security_group]
        # Otherwise Ray takes all that there are (aws/config.py, _configure_subnet): of others it
        # makes another head.
        config["SubnetIds"] = [*site.subnets]

    if group.spot:
        config["InstanceMarketOptions"] = {"MarketType": "spot"}

    return config


def _merged(made: dict[str, Any], added: Mapping[str, Any], at: str = "ec2.ray") -> dict[str, Any]:
    """Return a document with what is added to it: keys merged, lists put at the end. Raises
    RequestError.
    """
    result = deepcopy(made)
    for key, value in added.items():
        before = result.get(key)
        if isinstance(before, dict) and isinstance(value, dict):
            result[key] = _merged(before, value, f"{at}.{key}")
        elif isinstance(before, list) and isinstance(value, list):
            result[key] = [*before, *value]
        elif isinstance(before, dict | list):
            raise RequestError(
                f"{at}.{key} must be {'keys' if isinstance(before, dict) else 'a list'}, not "
                f"{value!r}"
            )
        else:
            result[key] = value

    return result
