"""The task smoke.run: a table of nodes, then skipped and failed checks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trainyard import paths
from trainyard.api import lazy
from trainyard.console.report import Report, Table
from trainyard.tasks.command import CLUSTER, Call, task

if TYPE_CHECKING:
    from trainyard_runner.wire.events import Check

_COLUMNS = ("nodes", "task", "versions", "gpus", "torch", "isolation", "transfer", "disk", "shm")
# Checks whose cell shows the detail up to the first match of _REST.
_SHOWN = ("task", "versions", "gpus", "transfer", "disk", "shm")
_UNTESTED = "-"
# Checks of GPUs. The check of torch also runs without GPUs if a job demands it.
_OF_GPUS = ("gpus", "torch", "isolation", "graphics")
_REST = re.compile(r" of .*| from .*|[;:].*")


@task(*CLUSTER, dry=True)
def run(call: Call) -> Report:
    """Test nodes, versions, GPUs, isolation, transfer and space; exit 5 if a check fails."""
    endpoint = lazy.clusters.connect(call.cluster())
    if call.dry:
        would = ["dashboard", *_COLUMNS]
        document = {"cluster": endpoint.cluster, "would": would}
        return Report(document, [f"would test on {endpoint.cluster}: {', '.join(would)}"])

    smoked = lazy.smoke.smoke(endpoint, call.progress)
    *lines, counts = body(smoked.checks)
    return Report(
        smoked.document(),
        [*lines, f"{counts}, {smoked.seconds:.1f} s"],
        next=f"trainyard train.dispatch {paths.example_job(Path.cwd())}",
        error=smoked.error,
    )


def body(checks: Sequence[Check]) -> Iterator[Table | str]:
    """Yield the results for people; the last line has the counts."""
    nodes = list(dict.fromkeys(check.node for check in checks if check.node))
    done = {check.name for check in checks if check.node}
    # "allocatable" is a backend's check, which runs before all others.
    columns: dict[str, list[str]] = {}
    for name in ("allocatable", *_COLUMNS):
        if name in done:
            columns[name] = [_cell(checks, node, name) for node in nodes]

    yield from _nodes(nodes, columns)
    yield from _lines(checks)
    yield _counts(checks)


def _nodes(nodes: Sequence[str], columns: Mapping[str, Sequence[str]]) -> Iterator[Table | str]:
    """Yield a table of nodes, and a line of results that all nodes share."""
    differs = []
    same = []
    for name, cells in columns.items():
        if len(nodes) == 1 or len(set(cells)) > 1:
            differs.append(name)
        elif cells and cells[0] != _UNTESTED:
            same.append(f"{name} {cells[0]}")

    if nodes:
        rows = []
        for row, node in enumerate(nodes):
            rows.append([node, *(columns[name][row] for name in differs)])
        yield Table(["node", *differs], rows)
    if same:
        yield f"on every node: {'; '.join(same)}"


def _cell(checks: Sequence[Check], node: str, name: str) -> str:
    for check in checks:
        if check.node == node and check.name == name:
            return _result(check)
    return _UNTESTED


def _result(check: Check) -> str:
    if check.skipped:
        return _UNTESTED
    if not check.ok:
        return "FAILED"
    if check.name in _SHOWN:
        return _REST.sub("", check.detail.removeprefix("answered in "))
    return "ok"


def _has_no_gpus(checks: Sequence[Check]) -> bool:
    """Without GPUs, the check "gpus" of the whole cluster is skipped."""
    return any(check.name == "gpus" and check.node is None and check.skipped for check in checks)


def _untested(checks: Sequence[Check]) -> list[Check]:
    left_out = _OF_GPUS if _has_no_gpus(checks) else ()
    return [check for check in checks if check.skipped and check.name not in left_out]


def _lines(checks: Sequence[Check]) -> Iterator[str]:
    """Yield checks of the cluster, then skipped ones, then failed ones."""
    untested: dict[tuple[str, str], list[str]] = {}
    for check in _untested(checks):
        untested.setdefault((check.name, check.detail), []).append(check.node or "")

    failed = []
    for check in checks:
        name = check.name
        node = check.node
        where = f" on {node}" if node else ""
        if not check.ok:
            failed.append(f"FAILED  {name}{where}: {check.detail}")
        elif node is None and not check.skipped:
            yield f"{name}: {check.detail}"

    if _has_no_gpus(checks):
        yield "no GPUs: checks of GPUs skipped"

    for (name, reason), nodes in untested.items():
        where = f" ({', '.join(nodes)})" if any(nodes) else ""
        yield f"not tested: {name}{where}: {reason}"

    yield from failed


def _counts(checks: Sequence[Check]) -> str:
    good = sum(check.ok and not check.skipped for check in checks)
    failed = sum(not check.ok for check in checks)
    untested = len(_untested(checks))
    counts = [f"smoke: {good} checks ok"]
    if failed:
        counts.append(f"{failed} failed")
    if untested:
        counts.append(f"{untested} not tested")
    return ", ".join(counts)
