"""A cluster's endpoint: all that dispatch and smoke know about a cluster."""

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
    """The address and token of a cluster's dashboard, and what to expect.

    `expected` (the nodes) and `ray_version` are None for a cluster that
    Trainyard did not make. `image` is the digest reference that the nodes run;
    None if the nodes are not containers. `tunnel` is None if every process on
    this machine can use the address. Otherwise, `address` is the local end of a
    tunnel to the host `tunnel`, which closes with this process. `down` has
    (node, reason) for each node that is known not to run. `checks` returns the
    backend's own smoke checks. `is_in_reach` says whether the systems on the
    way to the cluster answer, such as the Kubernetes API server; if they do
    not, the cluster itself may be healthy. `names_change` says whether a
    replaced node gets another name. `refused` is the hint for a rejected token.
    `lacking` returns the first of the given packages that the head's Python
    lacks; None if it lacks none, or if only a task can find out. `ray_address`
    opens a connection for a driver on this machine, and returns the address for
    `ray.init`: of Ray's GCS, or of its Ray Client server (ray://). It is None
    if no such connection is possible.
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
