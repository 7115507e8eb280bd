"""Where `cluster.up` makes nodes itself, as containers or processes: what does not fit goes, what is missing starts."""

from __future__ import annotations

from collections.abc import Sequence

from trainyard.backends import ray_nodes, replace_head
from trainyard.backends.machine import Machine
from trainyard.steps import YES, Answer, Step, no, nothing
from trainyard.wording import all_answer, counted, named

# A head and two workers took 5 to 8 s on 2 idle cores; a busy machine may need many times that, and several tries.
READY_SECONDS = 300.0


def steps(machine: Machine, preparations: Sequence[Step]) -> list[Step]:
    """Return the preparations, then the steps that remove what is surplus and start what is missing."""
    recreate = machine.tools.recreate
    nodes, difference = machine.nodes(), machine.difference()
    surplus = nodes if recreate else {name: nodes[name] for name in difference.surplus}
    count = len(machine.spec.nodes())

    def are_gone() -> Answer:
        now = machine.nodes()
        left = [name for name, node in surplus.items() if name in now and now[name].identity == node.identity]
        return no(f"still there: {', '.join(left)}") if left else YES

    def are_started() -> Answer:
        missing = machine.difference().missing
        return no(f"not there: {', '.join(missing)}") if missing else YES

    missing = () if recreate else difference.missing
    # The whole cluster where that is all of it, or nothing is missing.
    whole = f"the head and {counted(count - 1, 'worker')}" if count > 1 else "the head"
    start = f"Start {named(missing) if 0 < len(missing) < count else whole}"
    away = f"Remove {named(tuple(surplus))}" if surplus else None
    disruptive = any(node.runs for node in surplus.values())
    return [
        *_refusal(machine),
        *preparations,
        *([Step(away, are_gone, lambda: machine.remove(surplus), disruptive=disruptive)] if away else []),
        Step(start, are_started, lambda: machine.start(machine.difference().missing), after=away),
        Step(all_answer(count), lambda: _all_answer(machine), nothing, deadline=READY_SECONDS, after=start),
    ]


def _refusal(machine: Machine) -> list[Step]:
    """Return the step that refuses to replace a head that runs: all runs end with it, so that it must be asked for."""
    head, desired = machine.nodes().get("head"), machine.desired()["head"]
    if head is None or machine.tools.recreate or not (head.runs and head.has_run) or head.plan == desired:
        return []
    return [replace_head.step(replace_head.refusal(ray_nodes.changes(head.plan, desired)))]


def _all_answer(machine: Machine) -> Answer:
    nodes = machine.nodes()
    for name, node in nodes.items():
        if not node.runs:
            raise machine.end_reason(name)
    alive, detail = machine.alive(nodes)
    silent = [node.name for node in machine.spec.nodes() if node.name not in alive]
    return no(detail or f"waiting for {', '.join(silent)}") if silent else YES
