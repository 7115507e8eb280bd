"""`cluster.scale gpu=3`: the cluster as its file says, but for the size of a group."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from trainyard.errors import Problem, RequestError
from trainyard.lifecycle import Cluster
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.load import load_cluster

_SIZE = re.compile(r"[^=.]+=[0-9]{1,5}")
FORM = "must be GROUP=N, such as gpu=3"


def scaled(cluster: Cluster, sizes: Sequence[str]) -> Cluster:
    """Return the cluster with other sizes of its groups, given as GROUP=N. Raises RequestError with all that is wrong.

    Of a group that grows and shrinks by itself, N is the fewest nodes.
    """
    spec = cluster.spec
    if not cluster.backend.TRAITS.makes_nodes:
        raise RequestError(
            f"cluster {spec.name} is run by somebody else: Trainyard cannot change its size",
            where=str(cluster.loaded.source),
            hint="Ask whoever runs it.",
        )
    problems = [Problem(size, FORM) for size in sizes if not _SIZE.fullmatch(size)]
    if problems or not sizes:
        what = "the cluster cannot be scaled like that" if sizes else f"no size was given: it {FORM}"
        raise RequestError(what, problems=tuple(problems), where=str(cluster.loaded.source))
    overrides = (*cluster.tools.overrides, *_overrides(spec, sizes))
    loaded = load_cluster(cluster.loaded.source, overrides=overrides, backend=spec.backend)
    return Cluster(loaded, replace(cluster.tools, overrides=overrides))


def differences(file: ClusterSpec, now: ClusterSpec) -> list[str]:
    return [
        f"{then.name}: {then.least} in the file, {group.least} now"
        for then, group in zip(file.workers, now.workers, strict=True)
        if then.least != group.least
    ]


def _overrides(spec: ClusterSpec, sizes: Sequence[str]) -> Iterator[str]:
    """Yield what stands for each size behind --set, unless the file has it; the file's reader knows the groups."""
    groups = {group.name: group for group in spec.workers}
    for size in sizes:
        name, _, count = size.partition("=")
        group = groups.get(name)
        if group is None or group.least != int(count):
            yield f"workers.{name}.{'min' if group and group.max is not None else 'count'}={int(count)}"
