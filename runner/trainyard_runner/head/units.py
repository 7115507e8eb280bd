"""Units (tasks or gangs): how attempts ended, and whether to retry them."""

from __future__ import annotations

from dataclasses import dataclass, field

from trainyard_runner.wire.outcome import State
from trainyard_runner.wire.plan import Task

# A lost attempt uses up no retry. This limit ends a task that makes its nodes fail.
MOST_LOSSES = 10


@dataclass
class Unit:
    """Tasks that start together, and how their attempts ended.

    `attempt`: the number of the current attempt, 0 before the first. `losses`:
    lost attempts. `failures`: failed attempts by task.
    """

    tasks: tuple[Task, ...]
    attempt: int = 0
    losses: int = 0
    failures: dict[str, int] = field(default_factory=dict)
    # The error of the newest attempt whose worker crashed before the task began, or None.
    crash: str | None = None
    # The fields below are about the current attempt. The culprit is the first task that failed or
    # was lost.
    outcomes: dict[str, str] = field(default_factory=dict)
    culprit: str | None = None
    reason: str | None = None
    is_final: bool = False

    @property
    def is_over(self) -> bool:
        return len(self.outcomes) == len(self.tasks)

    def begin(self) -> None:
        self.attempt += 1
        self.outcomes = {}
        self.culprit = None

    def ended(self, task: Task, outcome: str, *, is_final: bool = False) -> None:
        """Record how one task's attempt ended; `is_final`: a retry cannot help.

        Only the first task that fails or is lost counts as a failure or loss of
        the unit.
        """
        self.outcomes[task.name] = outcome
        if outcome in ("succeeded", "stopped") or self.culprit is not None:
            return
        self.culprit = task.name
        self.is_final = is_final
        if outcome == "lost":
            self.losses += 1
        else:
            self.failures[task.name] = self.failures.get(task.name, 0) + 1

    def may_try_again(self) -> bool:
        if self.culprit is None or self.is_final:
            return False
        task = next(task for task in self.tasks if task.name == self.culprit)
        return self.losses <= MOST_LOSSES and self.failures.get(task.name, 0) <= task.retries

    def states(self) -> dict[str, State]:
        known: dict[str, State] = {"succeeded": "succeeded", "stopped": "stopped"}
        return {name: known.get(outcome, "failed") for name, outcome in self.outcomes.items()}
