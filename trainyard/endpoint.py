"""The endpoint of a cluster, and its promises: all that dispatch and smoke know about a cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from trainyard_runner.wire.events import Check


@dataclass(frozen=True)
class ExpectedNode:
    """A Ray node of the cluster file; memory in bytes. An `optional` one is added on demand.

    `resources` are Ray's custom ones.
    """

    name: str
    group: str
    cpus: int | None
    gpus: int = 0
    memory: int | None = None
    optional: bool = False
    resources: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class MissingPackage:
    """A package that an interpreter of this machine, by its path, does not have."""

    name: str
    python: str


@dataclass(frozen=True)
class Endpoint:
    """Where a cluster answers: an HTTP address and a token.

    `expected` and `ray_version` are None for a cluster that Trainyard did not make: it has no
    promises. `image` is the image that its nodes really run, by digest; None where nodes are no
    containers. `tunnel` is the host that the address leads to through a tunnel of this process;
    None where every user here may use the address. `down` are nodes that are known not to run, each
    with why. `checks` asks the backend for its rungs of the smoke test. `is_in_reach` says whether
    systems on the way answer, such as Kubernetes' API server: while they do not, the cluster may be
    well. `names_change`: a replaced node gets another name. `refused` is the hint for a rejected
    token. `lacking` says which of some packages the head's Python lacks, where that can be asked
    without a task. `ray_address` opens the way for a program of this machine that is to drive the
    cluster itself, and returns the address that `ray.init` takes: of Ray's GCS, or of its Ray
    Client server (ray://); None where there is no way.
    """

    cluster: str
    address: str
    token: str | None = field(default=None, repr=False)
    simulated_gpus: bool = False
    expected: tuple[ExpectedNode, ...] | None = None
    ray_version: str | None = None
    image: str | None = None
    tunnel: str | None = None
    down: tuple[tuple[str, str], ...] = ()
    checks: Callable[[], tuple[Check, ...]] = field(default=tuple, compare=False, repr=False)
    is_in_reach: Callable[[], bool] = field(default=lambda: True, compare=False, repr=False)
    names_change: bool = False
    refused: str = ""
    lacking: Callable[[Sequence[str]], MissingPackage | None] = field(
        default=lambda packages: None, compare=False, repr=False
    )
    ray_address: Callable[[], str] | None = field(default=None, compare=False, repr=False)
