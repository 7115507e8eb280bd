"""The smoke test's rungs (kinds of checks), which are pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trainyard_runner.wire import members
from trainyard_runner.wire.events import Check
from trainyard_runner.wire.nodes import Node, names_of
from trainyard_runner.wire.plan import Gate

_LEAST_DISK = 512 * 1024 * 1024
_LEAST_SHM = 64 * 1024 * 1024


@dataclass(frozen=True)
class Answer:
    """A node's answer: its facts, or else the problem.

    `isolated`: the task that collected the facts held one GPU. `each`: what the
    node's tasks, one on each GPU, saw while all ran at the same time; () if
    this was not tried.
    """

    node: Node
    facts: dict[str, Any] | None
    seconds: float
    problem: str | None = None
    isolated: bool = False
    each: tuple[dict[str, Any], ...] = ()


def without_gone(answers: Sequence[Answer], alive: Sequence[Node], gate: Gate) -> list[Answer]:
    """Drop failed answers of dead nodes that were replaced or may leave.

    An autoscaler may remove nodes. Ray lists a recreated node twice for a
    while. Any other dead node's failed answer gets the problem that the node
    left the cluster.
    """
    now = {node.node_id for node in alive}
    names = set(names_of(alive))
    kept = []
    for answer in answers:
        if answer.facts is not None or answer.node.node_id in now:
            kept.append(answer)
        elif answer.node.name not in names and not members.may_leave(gate, answer.node):
            kept.append(replace(answer, problem="the node left the cluster during the smoke test"))
    return kept


def nodes(gate: Gate, alive: Sequence[Node], *, seconds: float) -> Iterator[Check]:
    """Check that all required nodes are alive, and enough for the job."""
    names = names_of(alive)
    lacking = names_of(members.missing(gate, alive))
    expected = []
    if not gate.names_change:
        expected = [node.name for node in gate.nodes or () if not node.optional]

    others = [name for name in lacking if name not in expected]
    for name in [*(expected or names), *others]:
        if name not in lacking:
            yield Check("nodes", name, True, "alive", seconds)
        else:
            missing_hint = "`trainyard cluster.up` starts what is missing, or says why it cannot."
            there = ", ".join(sorted(names))
            detail = f"not in the cluster after {seconds:.0f} s; there are {there}"
            yield Check("nodes", name, False, detail, seconds, hint=missing_hint)

    least = gate.needs.get("min_nodes")
    if least is not None:
        is_enough = len(alive) >= least
        detail = f"{len(alive)} nodes, the job needs {least}"
        hint = None
        if not is_enough:
            hint = "Raise `count` in the cluster file, or lower `smoke.min_nodes` in the job file."
        yield Check("nodes", None, is_enough, detail, hint=hint)


def task(answers: Sequence[Answer]) -> Iterator[Check]:
    """Check that a Ray task ran on every node and answered."""
    for answer in answers:
        name = answer.node.name
        if answer.facts is not None:
            detail = f"answered in {answer.seconds:.1f} s"
            yield Check("task", name, True, detail, answer.seconds)
        else:
            hint = "Look at the node's raylet and worker logs: `trainyard cluster.logs`."
            yield Check("task", name, False, answer.problem or "", answer.seconds, hint=hint)


def versions(answers: Sequence[Answer], wanted: tuple[str, str]) -> Iterator[Check]:
    """Check that every node has the wanted versions of Ray and Python."""
    for answer, facts in with_facts(answers):
        found = (facts["ray"], facts["python"])
        detail = f"Ray {found[0]}, Python {found[1]}"
        if found == wanted:
            yield Check("versions", answer.node.name, True, detail)
        else:
            hint = "Use the same image or environment on every node; Ray cannot mix versions."
            wrong = f"{detail}; expected Ray {wanted[0]}, Python {wanted[1]}"
            yield Check("versions", answer.node.name, False, wrong, hint=hint)


def space(answers: Sequence[Answer], gate: Gate) -> Iterator[Check]:
    """Check the free space in each node's session directory and /dev/shm."""
    for name, key, least in (("disk", "min_disk", _LEAST_DISK), ("shm", "min_shm", _LEAST_SHM)):
        wanted = max(least, gate.needs.get(key) or 0)
        for answer, facts in with_facts(answers):
            found = facts[name]
            if found is None:
                yield Check(name, answer.node.name, True, "this system has none", skipped=True)
                continue

            ok = found["free"] >= wanted
            detail = f"{_size(found['free'])} free of {_size(found['total'])}"
            where = "Ray's session directory" if name == "disk" else "/dev/shm (Docker: --shm-size)"  # noqa: S108
            hint = None
            if not ok:
                hint = f"Make room in {where}: at least {_size(wanted)} must be free."
            yield Check(name, answer.node.name, ok, detail, hint=hint)


def transfer(results: dict[str, dict[str, Any]], seconds: float) -> Iterator[Check]:
    """Check that every node fetched an object from every other node."""
    if len(results) < 2:
        yield Check("transfer", None, True, "one node only", skipped=True)
        return

    for node, said in results.items():
        if problem := said.get("problem"):
            yield Check("transfer", node, False, problem, seconds, hint=_OPEN_PORTS)
            continue

        broken = []
        rates = []
        for other, result in said.items():
            if "error" in result:
                broken.append(f"nothing from {other}: {result['error']}")
            else:
                rates.append(f"{result['rate']:.0f} MB/s from {other}")

        if broken:
            yield Check("transfer", node, False, "; ".join(broken), seconds, hint=_OPEN_PORTS)
        else:
            yield Check("transfer", node, True, ", ".join(rates), seconds)


_OPEN_PORTS = (
    "The nodes must reach each other on all of Ray's ports (object manager, node manager, workers)."
)


def with_facts(answers: Sequence[Answer]) -> Iterator[tuple[Answer, dict[str, Any]]]:
    """Yield the answers with facts; those without fail the check `task`."""
    for answer in answers:
        if answer.facts is not None:
            yield answer, answer.facts


def first_failed(checks: Sequence[Check]) -> Check | None:
    """Return the first check that failed: later ones may fail because of it."""
    return next((check for check in checks if not check.ok), None)


def _size(amount: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"
