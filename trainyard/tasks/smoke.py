"""Prove that a cluster can train: a row per node and a column per check, what was not tested and
why, what failed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trainyard import paths
from trainyard.console.report import Report, Table
from trainyard.tasks import lazy
from trainyard.tasks.command import CLUSTER, Call, task

if TYPE_CHECKING:
    from trainyard.dispatch.smoke import CheckFields

_COLUMNS = ("nodes", "task", "versions", "gpus", "torch", "isolation", "transfer", "disk", "shm")
# Of these a cell shows the beginning of what was found, up to any of these words.
_SHOWN = ("task", "versions", "gpus", "transfer", "disk", "shm")
_UNTESTED = "-"
# What is tried on GPUs alone; torch also elsewhere, where a job asks for it.
_OF_GPUS = ("gpus", "torch", "isolation", "graphics")
_REST = re.compile(r" of .*| from .*|[;:].*")


@task(*CLUSTER, dry=True)
def run(call: Call) -> Report:
    """Test nodes, versions, GPUs, isolation, transfer and space; exit 5 if something is wrong."""
    from trainyard.dispatch import smoke

    endpoint = lazy.clusters.connect(call.cluster())
    if call.dry:
        would = ["dashboard", *_COLUMNS]
        document = {"cluster": endpoint.cluster, "would": would}
        return Report(document, [f"would test on {endpoint.cluster}: {', '.join(would)}"])

    smoked = smoke.smoke(endpoint, call.progress)
    *lines, counts = body(smoked.checks)
    return Report(
        smoked.document(),
        [*lines, f"{counts}, {smoked.seconds:.1f} s"],
        next=f"trainyard train.dispatch {paths.example_job(Path.cwd())}",
        error=smoked.error,
    )


def body(checks: Sequence[CheckFields]) -> Iterator[Table | str]:
    """Yield what the smoke test found, as people read it; the last line counts."""
    nodes = list(dict.fromkeys(check["node"] for check in checks if check["node"]))
    done = {check["name"] for check in checks if check["node"]}
    # What only a backend can check comes before all others.
    columns = [name for name in ("allocatable", *_COLUMNS) if name in done]
    yield from _nodes(
        nodes, {name: [_cell(checks, node, name) for node in nodes] for name in columns}
    )
    yield from _lines(checks)
    yield _counts(checks)


def _nodes(nodes: Sequence[str], cells: Mapping[str, Sequence[str]]) -> Iterator[Table | str]:
    """Yield a row a node, and once what is the same on all of them."""
    same = {name: each[0] for name, each in cells.items() if len(nodes) > 1 and len(set(each)) == 1}
    differs = [name for name in cells if name not in same]
    if nodes:
        rows = [[node, *(cells[name][row] for name in differs)] for row, node in enumerate(nodes)]
        yield Table(["node", *differs], rows)
    told = [f"{name} {cell}" for name, cell in same.items() if cell != _UNTESTED]
    if told:
        yield f"on every node: {'; '.join(told)}"


def _cell(checks: Sequence[CheckFields], node: str, name: str) -> str:
    check = next((each for each in checks if (each["node"], each["name"]) == (node, name)), None)
    if check is None or check["skipped"]:
        return _UNTESTED
    short = "ok"
    if name in _SHOWN:
        short = _REST.sub("", check["detail"].removeprefix("answered in "))
    return short if check["ok"] else "FAILED"


def _has_no_gpus(checks: Sequence[CheckFields]) -> bool:
    """Say whether nothing of the cluster has GPUs: then the check of GPUs is one of the whole
    cluster.
    """
    return any(
        check["name"] == "gpus" and check["node"] is None and check["skipped"] for check in checks
    )


def _untested(checks: Sequence[CheckFields]) -> list[CheckFields]:
    """Return what was not tested, without the checks of GPUs where there are none."""
    left_out = _OF_GPUS if _has_no_gpus(checks) else ()
    return [check for check in checks if check["skipped"] and check["name"] not in left_out]


def _lines(checks: Sequence[CheckFields]) -> Iterator[str]:
    """Yield what was found of the whole cluster, what it does not claim or could not be tried, and
    what failed.
    """
    untested: dict[tuple[str, str], list[str]] = {}
    for check in _untested(checks):
        untested.setdefault((check["name"], check["detail"]), []).append(check["node"] or "")

    failed = []
    for check in checks:
        name, node, detail = check["name"], check["node"], check["detail"]
        if not check["ok"]:
            failed.append(f"FAILED  {name}{f' on {node}' if node else ''}: {detail}")
        elif node is None and not check["skipped"]:
            yield f"{name}: {detail}"

    if _has_no_gpus(checks):
        yield "no GPUs: checks of GPUs skipped"

    for (name, reason), nodes in untested.items():
        where = f" ({', '.join(nodes)})" if any(nodes) else ""
        yield f"not tested: {name}{where}: {reason}"

    yield from failed


def _counts(checks: Sequence[CheckFields]) -> str:
    bad = sum(not check["ok"] for check in checks)
    good = sum(check["ok"] and not check["skipped"] for check in checks)
    skipped = len(_untested(checks))
    told = {"failed": bad, "not tested": skipped}
    return ", ".join(
        [f"smoke: {good} checks ok", *(f"{n} {what}" for what, n in told.items() if n)]
    )
