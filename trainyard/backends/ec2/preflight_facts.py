"""What the preflight compares with the cluster file: what AWS and this machine say."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainyard.errors import TrainyardError
from trainyard.spec.cluster import ClusterSpec, Head, WorkerGroup

# As AWS describes it.
Object = Mapping[str, Any]
# What is wrong: with what, and what with it.
Found = tuple[str, str]
# What `ray up` runs here, and Debian's packages of it.
PROGRAMS = {"rsync": "rsync", "ssh": "openssh-client"}
STANDARD, GRAPHICS = ("L-1216C47A", "L-34B43A08"), ("L-DB2E81BA", "L-3819A6DF")
# The quotas of vCPUs that a family counts against, on demand and as spot (EC2 user guide, "EC2 instance type quotas").
QUOTAS = {
    **dict.fromkeys((*"acdhimrtz", "im", "is"), STANDARD),
    **dict.fromkeys(("g", "gr", "vt"), GRAPHICS),
    "dl": ("L-6E869C2A", "L-85EED4F7"),
    "f": ("L-74FC7D96", "L-88CF9481"),
    "inf": ("L-1945791B", "L-B5D1601B"),
    "p": ("L-417A185B", "L-7212CCBC"),
    "trn": ("L-2C3B7624", "L-6B0D517C"),
    "x": ("L-7295265B", "L-E3A00192"),
}


@dataclass(frozen=True)
class Group:
    """The instances of one group, as many as there may be. `ami` is an id or a parameter of SSM; `disk` is bytes."""

    name: str
    most: int
    cpus: int
    gpus: int
    instance_type: str
    ami: str
    disk: int
    spot: bool

    @property
    def quota(self) -> str | None:
        return quota_of(self.instance_type, spot=self.spot)


@dataclass(frozen=True)
class Facts:
    """What was answered, by name or id; None, or nothing, where it is not known, or was not asked.

    `public_key` is that of the key file: "" where there is none, None where it takes a passphrase. `used` are vCPUs by
    quota; `elsewhere` counts instances of the name by region. `denied` is what we may not do, `denied_to_nodes` what
    the role of the instance profile may not. A pull takes `image` bytes. `errors` are refused questions without which
    no cluster is made, `unknown` are the others.
    """

    region: str
    programs: Collection[str] = (*PROGRAMS,)
    public_key: str | None = None
    regions: Mapping[str, Object] | None = None
    zones: Mapping[str, Object] | None = None
    types: Mapping[str, Object] | None = None
    offers: Sequence[Object] = ()
    quotas: Mapping[str, Object] = field(default_factory=dict)
    used: Mapping[str, int] = field(default_factory=dict)
    amis: Mapping[str, Object] | None = None
    vpcs: Mapping[str, Object] | None = None
    subnets: Mapping[str, Object] | None = None
    routes: Mapping[str, Object] = field(default_factory=dict)
    endpoints: Mapping[str, Object] = field(default_factory=dict)
    security_groups: Mapping[str, Object] | None = None
    key_pairs: Mapping[str, Object] | None = None
    profile: Object | None = None
    denied: Sequence[str] = ()
    denied_to_nodes: Sequence[str] = ()
    has_spot_role: bool = True
    elsewhere: Mapping[str, int] = field(default_factory=dict)
    image: int = 0
    errors: tuple[TrainyardError, ...] = ()
    unknown: tuple[str, ...] = ()


def groups(spec: ClusterSpec) -> list[Group]:
    """Return the head, and the groups of workers."""
    sizes: list[tuple[str, int, Head | WorkerGroup]] = [("head", 1, spec.head)]
    sizes += [(group.name, group.most, group) for group in spec.workers]
    found = []
    for name, most, size in sizes:
        kind = spec.ec2.instances(name)
        disk, spot = kind.disk or 0, bool(kind.spot)
        found.append(Group(name, most, size.cpus or 0, size.gpus, kind.instance_type or "", kind.ami or "", disk, spot))
    return found


def ecr_address(spec: ClusterSpec) -> str:
    """Return the registry of the image, where that is Amazon's."""
    registry = spec.registry if spec.image else None
    return registry.address if registry and registry.login == "ecr" else ""


def quota_of(instance_type: str, *, spot: bool) -> str | None:
    family = re.match("[a-z]+", instance_type)
    codes = QUOTAS.get(family[0]) if family else None
    return codes[spot] if codes else None


def is_enabled(region: Object | None) -> bool:
    return region is not None and region["OptInStatus"] != "not-opted-in"
