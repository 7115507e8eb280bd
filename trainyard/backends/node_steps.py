"""Where `cluster.up` makes nodes itself, as containers or processes: what does not fit goes, what is missing starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from trainyard.backends.ray_nodes import NodePlan
from trainyard.backends.wording import all_answer, counted, named
from trainyard.steps import YES, Answer, Step, no, nothing

# A head and two workers took 5 to 8 s on 2 idle cores; a busy machine may need many times that, and several tries.
READY_SECONDS = 300.0


@dataclass(frozen=True)
class Difference:
    """What has to be done about the nodes, by their names, so that they are as the file asks."""

    missing: tuple[str, ...]
    surplus: tuple[str, ...]


@dataclass(frozen=True)
class Nodes:
    """The nodes of a cluster as their backend makes them.

    `made` are those that there are, each with what no successor of the same name has. `answer` returns which are alive
    for Ray, and why there are none.
    """

    plans: tuple[NodePlan, ...]
    made: Callable[[], Mapping[str, object]]
    missing: Callable[[], Sequence[str]]
    start: Callable[[], None]
    answer: Callable[[], tuple[frozenset[str], str]]


def steps(
    nodes: Nodes, surplus: Mapping[str, object], *, remove: Callable[[], None], runs: bool, recreate: bool
) -> list[Step]:
    """Return the steps that `remove` what is surplus, of which something `runs` or not, and start what is missing."""

    def are_gone() -> Answer:
        made = nodes.made()
        left = [name for name, identity in surplus.items() if made.get(name) == identity]
        return no(f"still there: {', '.join(left)}") if left else YES

    def are_started() -> Answer:
        missing = nodes.missing()
        return no(f"not there: {', '.join(missing)}") if missing else YES

    def answer() -> Answer:
        answering, detail = nodes.answer()
        silent = [plan.name for plan in nodes.plans if plan.name not in answering]
        return no(detail or f"waiting for {', '.join(silent)}") if silent else YES

    count = len(nodes.plans)
    missing = () if recreate else nodes.missing()
    # The whole cluster where that is all of it, or nothing is missing.
    whole = f"the head and {counted(count - 1, 'worker')}" if count > 1 else "the head"
    start = f"Start {named(missing) if 0 < len(missing) < count else whole}"
    away = f"Remove {named(tuple(surplus))}" if surplus else None
    return [
        *([Step(away, done=are_gone, do=remove, disruptive=runs)] if away else []),
        Step(start, done=are_started, do=nodes.start, after=away),
        Step(all_answer(count), done=answer, do=nothing, deadline=READY_SECONDS, after=start),
    ]
