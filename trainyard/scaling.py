"""`cluster.scale gpu=3`: the cluster as its file says, but for the size of a group."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from trainyard.errors import Problem, RequestError
from trainyard.lifecycle import Cluster
from trainyard.spec import load_cluster
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.nodes import WorkerGroup
from trainyard.suggest import did_you_mean

_SIZE = re.compile(r"(?P<group>[^=]+)=(?P<count>[0-9]{1,5})")
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
    problems = [problem for size in sizes if (problem := _problem(spec, size))]
    if problems or not sizes:
        raise RequestError(
            "the cluster cannot be scaled like that" if sizes else f"no size was given: it {FORM}",
            problems=tuple(problems),
            where=str(cluster.loaded.source),
            hint=f"Groups that there are: {', '.join(group.name for group in spec.workers) or 'none'}",
        )
    overrides = (*cluster.tools.overrides, *(one for size in sizes if (one := _override(spec, size))))
    loaded = load_cluster(cluster.loaded.source, overrides=overrides, backend=spec.backend)
    return Cluster(loaded, replace(cluster.tools, overrides=overrides))


def differences(file: ClusterSpec, now: ClusterSpec) -> list[str]:
    return [
        f"{then.name}: {then.wanted} in the file, {group.wanted} now"
        for then, group in zip(file.workers, now.workers, strict=True)
        if then.wanted != group.wanted
    ]


def _problem(spec: ClusterSpec, size: str) -> Problem | None:
    found = _SIZE.fullmatch(size)
    if found is None:
        return Problem(size, FORM)
    if found["group"] == "head":
        return Problem(size, "the head is one node, always")
    group = _group(spec, found["group"])
    if group is None:
        names = [one.name for one in spec.workers]
        return Problem(size, f"there is no group {found['group']!r}{did_you_mean(found['group'], names)}")
    if group.max is not None and int(found["count"]) > group.max:
        return Problem(size, f"is more than the group's max ({group.max})")
    return None


def _override(spec: ClusterSpec, size: str) -> str | None:
    """Return what stands for a size behind --set, None if the file has that size."""
    name, _, count = size.partition("=")
    group = _group(spec, name)
    if group is None or group.wanted == int(count):
        return None
    return f"workers.{name}.{'count' if group.max is None else 'min'}={int(count)}"


def _group(spec: ClusterSpec, name: str) -> WorkerGroup | None:
    return next((group for group in spec.workers if group.name == name), None)
