"""Prove that a cluster can train: a row per node and a column per check, what was not tested and why, what failed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trainyard import paths
from trainyard.tasks import lazy
from trainyard.tasks.command import CLUSTER, Call, task
from trainyard.tasks.report import Report, Table

if TYPE_CHECKING:
    from trainyard.smoke import Check

_COLUMNS = ("nodes", "task", "versions", "gpus", "torch", "isolation", "transfer", "disk", "shm")
# Of these a cell shows the beginning of what was found, up to any of these words.
_SHOWN = ("task", "versions", "gpus", "transfer", "disk", "shm")
_REST = re.compile(r" of .*| from .*|[;:].*")


@task(*CLUSTER, dry=True)
def run(call: Call) -> Report:
    """Test nodes, versions, GPUs, isolation, transfer and space; exit 5 if something is wrong."""
    from trainyard import smoke

    endpoint = lazy.lifecycle.connect(call.cluster())
    if call.dry:
        would = ["dashboard", *_COLUMNS]
        document = {"cluster": endpoint.cluster, "would": would}
        return Report(document, [f"would test on {endpoint.cluster}: {', '.join(would)}"])
    smoked = smoke.smoke(endpoint, call.progress)
    nodes = list(dict.fromkeys(check["node"] for check in smoked.checks if check["node"]))
    done = {check["name"] for check in smoked.checks if check["node"]}
    # What only a backend can check comes before all others.
    columns = [name for name in ("allocatable", *_COLUMNS) if name in done]
    table = Table(["node", *columns], [[node, *_cells(smoked.checks, node, columns)] for node in nodes])
    return Report(
        smoked.document(),
        [*([table] if nodes else []), *_lines(smoked.checks), f"{_counts(smoked.checks)}, {smoked.seconds:.1f} s"],
        next=f"trainyard train.dispatch {paths.example_job(Path.cwd())}",
        error=smoked.error,
    )


def _cells(checks: Sequence[Check], node: str, names: list[str]) -> Iterator[str]:
    of_node = {check["name"]: check for check in checks if check["node"] == node}
    for name in names:
        check = of_node.get(name)
        if check is None or check["skipped"]:
            yield "-"
        else:
            short = _REST.sub("", check["detail"].removeprefix("answered in ")) if name in _SHOWN else "ok"
            yield short if check["ok"] else "FAILED"


def _lines(checks: Sequence[Check]) -> Iterator[str]:
    """Yield what was found of the whole cluster, what it does not claim or could not be tried, and what failed."""
    untested: dict[tuple[str, str], list[str]] = {}
    failed = []
    for check in checks:
        name, node, detail = check["name"], check["node"], check["detail"]
        if not check["ok"]:
            failed.append(f"FAILED  {name}{f' on {node}' if node else ''}: {detail}")
        elif check["skipped"]:
            untested.setdefault((name, detail), []).append(node or "")
        elif node is None:
            yield f"{name}: {detail}"
    for (name, reason), nodes in untested.items():
        where = f" ({', '.join(nodes)})" if any(nodes) else ""
        yield f"not tested: {name}{where}: {reason}"
    yield from failed


def _counts(checks: Sequence[Check]) -> str:
    bad = sum(not check["ok"] for check in checks)
    skipped = sum(bool(check["skipped"]) for check in checks)
    good = len(checks) - bad - skipped
    return (
        f"smoke: {good} checks ok" + (f", {bad} failed" if bad else "") + (f", {skipped} not tested" if skipped else "")
    )
