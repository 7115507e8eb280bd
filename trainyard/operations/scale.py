"""Change the size of a cluster without changing its file."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from trainyard.backends.shared.record import made_with
from trainyard.errors import Problem, RequestError
from trainyard.operations.cluster import Cluster
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.load import load_cluster

_SIZE = re.compile(r"[^=.]+=[0-9]{1,5}")
_SIZE_FORM = "must be GROUP=N, such as gpu=3"
# A `--set` of a group's size: the group's name or index, and the key.
_OVERRIDE = re.compile(r"workers\.([^.=]+)\.(count|min|max)")


def scaled(cluster: Cluster, sizes: Sequence[str]) -> Cluster:
    """Return the cluster with new sizes of its groups, given as GROUP=N.

    For a group that autoscales, N is its minimum. Groups that are not named
    keep the sizes that the cluster was made with. Raises RequestError with
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
    problems = list(_problems(sizes))
    if problems:
        what = "the cluster cannot be scaled like that"
        raise RequestError(what, problems=tuple(problems), where=where)

    overrides = (
        *_kept(cluster, sizes),
        *cluster.site.overrides,
        *_size_overrides(spec, sizes),
    )
    loaded = load_cluster(cluster.loaded.source, overrides=overrides, backend=spec.backend)
    return replace(cluster, loaded=loaded, site=replace(cluster.site, overrides=overrides))


def size_differences(file: ClusterSpec, now: ClusterSpec) -> list[str]:
    """Name the groups whose size differs, with both sizes."""
    differences = []
    for then, group in zip(file.workers, now.workers, strict=True):
        if then.least != group.least:
            text = f"{then.name}: {then.least} in the file, {group.least} now"
            differences.append(text)
        if then.max != group.max:
            text = f"{then.name}: at most {then.most} in the file, {group.most} now"
            differences.append(text)
    return differences


def _problems(sizes: Sequence[str]) -> Iterator[Problem]:
    times = Counter(size.partition("=")[0] for size in sizes)
    for size in sizes:
        if not _SIZE.fullmatch(size):
            yield Problem(size, _SIZE_FORM)
        elif times[size.partition("=")[0]] > 1:
            yield Problem(size, "is one of several sizes of this group: give one")


def _kept(cluster: Cluster, sizes: Sequence[str]) -> Iterator[str]:
    """Yield the recorded overrides of sizes that this command leaves as is.

    Overrides that no longer fit the file's groups are left out.
    """
    workers = cluster.spec.workers
    groups = {str(index): group for index, group in enumerate(workers)}
    groups |= {group.name: group for group in workers}
    named = {size.partition("=")[0] for size in sizes}
    typed = {text.partition("=")[0].strip() for text in cluster.site.overrides}
    for text in made_with(cluster.site.state) or ():
        path = text.partition("=")[0].strip()
        match = _OVERRIDE.fullmatch(path)
        if match is None or path in typed:
            continue
        group = groups.get(match[1])
        key = match[2]
        if group is None or (key == "count") != (group.max is None):
            continue
        if group.name not in named or key == "max":
            yield text


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
