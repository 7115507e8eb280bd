"""Logs and shells of nodes, by node name, host name, address or Ray id."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TypeVar

from trainyard.backends.contract import LogLine, UnknownNodeError
from trainyard.operations.cluster import Cluster, connect_as_made
from trainyard.operations.clusters import refuse_other_file
from trainyard.wording import ESCAPES

# Ray's raylet and GCS begin each line of a dump of their state with this mark (ray/src/ray,
# DebugString).
_STATE_DUMP = "[state-dump]"
Answered = TypeVar("Answered")


def logs(
    cluster: Cluster, *, follow: bool, node: str = "", everything: bool = False
) -> Iterator[LogLine]:
    """Return the nodes' log lines, without colours; `follow` adds new lines.

    Without `everything`, Ray's dumps of its own state are left out: thousands
    of lines a minute.
    """
    refuse_other_file(cluster)

    def ask(name: str) -> Iterator[LogLine]:
        return cluster.backend.logs(cluster.spec, cluster.site, follow=follow, node=name)

    return readable(_by_any_name(cluster, node, ask), everything=everything)


def readable(lines: Iterable[LogLine], *, everything: bool) -> Iterator[LogLine]:
    for line in lines:
        if everything or _STATE_DUMP not in line.text:
            yield replace(line, text=ESCAPES.sub("", line.text))


def shell(cluster: Cluster, *, node: str, command: str, terminal: bool) -> list[str]:
    """Return a local command for a shell or `command` on a node or host."""
    refuse_other_file(cluster)

    def ask(name: str) -> list[str]:
        return cluster.backend.shell(
            cluster.spec, cluster.site, node=name, command=command, terminal=terminal
        )

    return _by_any_name(cluster, node, ask)


def _by_any_name(cluster: Cluster, node: str, ask: Callable[[str], Answered]) -> Answered:
    """Ask about a node by the backend's name, or Ray's host, address or id."""
    try:
        return ask(node)
    except UnknownNodeError:
        names = _named_otherwise(cluster, node)
        if len(names) != 1:
            raise
        return ask(names.pop())


def _named_otherwise(cluster: Cluster, other: str) -> set[str]:
    """Return the names of nodes with this host name, address or Ray id."""
    # Imported here: most commands do not connect to Ray.
    from trainyard.seams.ray_api import RayApi

    endpoint = connect_as_made(cluster)
    with RayApi(endpoint.address, endpoint.token, refused=endpoint.refused) as ray:
        host_names = ray.host_names()
        alive = [node for node in ray.nodes() if node.alive]

    names = set()
    for node in alive:
        if other in (node.node_id, node.ip, host_names.get(node.node_id)):
            names.add(node.name)
    return names
