"""What smoke.run prints: a row per node and a column per check, what was not tested and why, what failed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from trainyard import paths
from trainyard.endpoint import Endpoint
from trainyard.smoke import Smoked
from trainyard.tasks.report import Report, Table

_COLUMNS = ("nodes", "task", "versions", "gpus", "torch", "isolation", "transfer", "disk", "shm")
# Of these a cell shows the beginning of what was found, up to any of these words.
_SHOWN = ("task", "versions", "gpus", "transfer", "disk", "shm")
_REST = re.compile(r" of .*| from .*|[;:].*")
# What only a backend can check, before any of these.
_OF_BACKEND = ("allocatable",)


def planned(endpoint: Endpoint) -> Report:
    checks = ["dashboard", *_COLUMNS]
    document = {"cluster": endpoint.cluster, "would": checks}
    return Report(document, [f"would test on {endpoint.cluster}: {', '.join(checks)}"])


def tested(smoked: Smoked) -> Report:
    """Show what was found."""
    nodes = list(dict.fromkeys(check["node"] for check in smoked.checks if check["node"]))
    done = {check["name"] for check in smoked.checks if check["node"]}
    columns = [name for name in (*_OF_BACKEND, *_COLUMNS) if name in done]
    table = Table(["node", *columns], [[node, *_cells(smoked, node, columns)] for node in nodes])
    return Report(
        smoked.document(),
        [*([table] if nodes else []), *_lines(smoked), _summary(smoked)],
        next=f"invoke train.dispatch {paths.example_job(Path.cwd())}",
        error=smoked.error,
    )


def _cells(smoked: Smoked, node: str, names: list[str]) -> Iterator[str]:
    checks = {check["name"]: check for check in smoked.checks if check["node"] == node}
    for name in names:
        check = checks.get(name)
        if check is None or check["skipped"]:
            yield "-"
        else:
            short = _REST.sub("", check["detail"].removeprefix("answered in ")) if name in _SHOWN else "ok"
            yield short if check["ok"] else "FAILED"


def _lines(smoked: Smoked) -> Iterator[str]:
    """Yield what was found of the whole cluster, what it does not claim or could not be tried, and what failed."""
    untested: dict[tuple[str, str], list[str]] = {}
    failed = []
    for check in smoked.checks:
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


def _summary(smoked: Smoked) -> str:
    bad = sum(not check["ok"] for check in smoked.checks)
    skipped = sum(bool(check["skipped"]) for check in smoked.checks)
    good = len(smoked.checks) - bad - skipped
    counts = f"{good} checks ok" + (f", {bad} failed" if bad else "") + (f", {skipped} not tested" if skipped else "")
    return f"smoke: {counts}, {smoked.seconds:.1f} s"
