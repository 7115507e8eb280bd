"""Change the size of a cluster without changing its file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from trainyard.errors import Problem, RequestError
from trainyard.operations.cluster import Cluster
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.load import load_cluster

_SIZE = re.compile(r"[^=.]+=[0-9]{1,5}")
_SIZE_FORM = "must be GROUP=N, such as gpu=3"


def scaled(cluster: Cluster, sizes: Sequence[str]) -> Cluster:
    """Return the cluster with new sizes of its groups, given as GROUP=N.

    For a group that autoscales, N is its minimum. Raises RequestError with
    every wrong size.
    """
    spec = cluster.spec
    if not cluster.backend.traits.makes_nodes:
        raise RequestError(
            f"cluster {spec.name} is run by somebody else: Trainyard cannot change its size",
            where=str(cluster.loaded.source),
            hint="Ask its administrator.",
        )

    where = str(cluster.loaded.source)
    if not sizes:
        raise RequestError(f"no size was given: it {_SIZE_FORM}", where=where)
    problems = [Problem(size, _SIZE_FORM) for size in sizes if not _SIZE.fullmatch(size)]
    if problems:
        what = "the cluster cannot be scaled like that"
        raise RequestError(what, problems=tuple(problems), where=where)

    overrides = (*cluster.site.overrides, *_size_overrides(spec, sizes))
    loaded = load_cluster(cluster.loaded.source, overrides=overrides, backend=spec.backend)
    return replace(cluster, loaded=loaded, site=replace(cluster.site, overrides=overrides))


def size_differences(file: ClusterSpec, now: ClusterSpec) -> list[str]:
    differences = []
    for then, group in zip(file.workers, now.workers, strict=True):
        if then.least != group.least:
            text = f"{then.name}: {then.least} in the file, {group.least} now"
            differences.append(text)
    return differences


def _size_overrides(spec: ClusterSpec, sizes: Sequence[str]) -> Iterator[str]:
    """Yield an override for each size that differs from the cluster file.

    An unknown group gets an override as well; the error comes when the file is
    loaded with it.
    """
    groups = {group.name: group for group in spec.workers}
    for size in sizes:
        name, _, count = size.partition("=")
        group = groups.get(name)
        if group is not None and group.least == int(count):
            continue
        if group is not None and group.max is not None:
            key = "min"
        else:
            key = "count"
        yield f"workers.{name}.{key}={int(count)}"
