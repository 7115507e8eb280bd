"""The endpoint of a cluster, and the nodes to expect: all that dispatch and smoke know of one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from trainyard_runner.wire.events import Check
from trainyard_runner.wire.plan import ExpectedNode


@dataclass(frozen=True)
class MissingPackage:
    """A package that a Python lacks; `python` is the interpreter's path."""

    name: str
    python: str


@dataclass(frozen=True)
class Endpoint:
    """The HTTP address and token of a cluster's dashboard, and what to expect there.

    `expected` (the nodes) and `ray_version` are None for a cluster that Trainyard did not make.
    `image` is the image that the nodes really run, by digest; None if nodes are no containers.
    `tunnel` is the remote host if the address is a tunnel's local end, which closes with this
    process; None if the address works for every process here. `down` are (node, reason) of nodes
    that are known not to run. `checks` asks the backend for its own checks of the smoke test.
    `is_in_reach` says whether the systems between here and the cluster answer, such as Kubernetes'
    API server: if not, the cluster itself may be healthy. `names_change`: a replaced node gets
    another name. `refused` is the hint for a rejected token. `lacking` returns the first of the
    given packages that the head's Python lacks; None if it has all, or if only a task can find out.
    `ray_address` opens a connection for a driver on this machine, and returns the address for
    `ray.init`: of Ray's GCS, or of its Ray Client server (ray://); None where there is none.
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
