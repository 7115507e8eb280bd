"""Where a cluster answers, and what it promised: all that dispatch and smoke ever know about one."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class ExpectedNode:
    """A Ray node that the cluster file asks for."""

    name: str
    group: str
    cpus: int | None
    gpus: int = 0


@dataclass(frozen=True)
class Endpoint:
    """One way in: an HTTP address and a token.

    `expected` and `ray_version` are None for a cluster that somebody else runs: nothing was promised there.
    `image` is what its nodes really run, by digest; None where nodes are no containers. `tunnel` is the host that the
    address leads to through a tunnel of this process; None where anybody here may use the address. `down` are nodes
    that are known not to run, each with why. `flag` is how commands name the cluster.
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
    flag: str = ""
