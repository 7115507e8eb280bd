"""How a run ended: the fields of its last event, and its exit code."""

from __future__ import annotations

from collections.abc import Mapping

from trainyard_runner.head.records import Records
from trainyard_runner.head.sweep import Sweep
from trainyard_runner.wire.events import RunEnded
from trainyard_runner.wire.outcome import State
from trainyard_runner.wire.plan import Plan

SMOKE_FAILED = 5
OUTSIDE = 6
BUG = 70


def of_tasks(
    plan: Plan, counts: Mapping[State, int], records: Records, sweep: Sweep | None
) -> RunEnded:
    """Return the last event of a run that was not stopped.

    The event has no seconds yet. The run fails if tasks failed, if outputs
    could not be sent to the head, or if a declared output is missing from all
    tasks that declare it.
    """
    # Pruned and failed trials do not always fail a sweep: the sweep itself decides.
    if sweep:
        problem = sweep.problem()
    else:
        problem = _unsuccessful(plan, counts)

    problem = problem or _lost(counts, records) or _absent(plan, records)
    result = sweep.result() if sweep else None
    if problem:
        return RunEnded("failed", 1, counts=counts, error=problem, sweep=result)
    return RunEnded("succeeded", 0, counts=counts, sweep=result)


def _unsuccessful(plan: Plan, counts: Mapping[State, int]) -> str | None:
    if counts["failed"] or counts["stopped"]:
        return f"{counts['failed']} of {len(plan.tasks)} tasks failed"
    return None


def _lost(counts: Mapping[State, int], records: Records) -> str | None:
    lost = {task: lines[0] for task, lines in records.lost_outputs.items() if lines}
    if not lost:
        return None
    task, line = next(iter(lost.items()))
    tasks = f"{len(lost)} of {sum(counts.values())} tasks"
    return f"outputs of {tasks} could not be brought back: {task}: {line}"


def _absent(plan: Plan, records: Records) -> str | None:
    """Return a sentence about a declared output that no task wrote, or None.

    In a gang, often only one task writes an output: that is enough.
    """
    declaring: dict[str, list[str]] = {}
    for task in plan.tasks:
        for output in task.outputs:
            declaring.setdefault(output, []).append(task.name)

    for output, tasks in declaring.items():
        if all(output in records.absent_outputs.get(task, ()) for task in tasks):
            return f"no task has written the declared output {output!r}"
    return None
