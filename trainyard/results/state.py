"""How a run stands: its events, folded into tasks and attempts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from trainyard.results import store
from trainyard.results.store import RunDirectory

State = Literal["waiting", "running", "succeeded", "failed", "stopped"]
# Last lines are for people: 10,000 failed tasks must not fill the memory with them (events.jsonl has them all).
TAILS_KEPT = 10
ENDED: tuple[State, ...] = ("succeeded", "failed", "stopped")


@dataclass
class Attempt:
    """One try of a task."""

    number: int
    node: str | None
    started: float
    outcome: str | None = None
    exit_code: int | None = None
    seconds: float | None = None
    reason: str | None = None
    tail: tuple[str, ...] = ()


@dataclass
class Task:
    """One task and its attempts."""

    name: str
    state: State = "waiting"
    attempts: list[Attempt] = field(default_factory=list)
    checkpoint: Mapping[str, Any] | None = None
    ended_because: str | None = None  # where that is not the reason of its last attempt
    # What it left, as archives on the cluster: the events "outputs" since the last whole one (of each attempt).
    archives: list[Mapping[str, Any]] = field(default_factory=list)

    @property
    def reason(self) -> str | None:
        """Return why it has ended, if that is worth a word; one that no node has begun never ran."""
        reason = self.ended_because or (self.attempts[-1].reason if self.attempts else None)
        if (self.state in ENDED or self.ended_because) and not any(attempt.node for attempt in self.attempts):
            return f"never ran: {reason}" if reason else "never ran"
        return reason


class RunState:
    """The one place that understands events; fed live while a run is followed, or from events.jsonl later."""

    def __init__(self, *, run: str, cluster: str, job: str | None, tasks: Iterable[str] = ()) -> None:
        self.run = run
        self.cluster = cluster
        self.job = job
        self.tasks = {name: Task(name) for name in tasks}
        self.state: State = "waiting"
        self.started: float | None = None
        self.heard: float | None = None  # when it last said something
        self.seconds: float | None = None
        self.node_id: str | None = None
        self.exit: int | None = None
        self.error: str | None = None
        self.hint: str | None = None
        self.gate: Mapping[str, Any] | None = None
        self.checks: list[Mapping[str, Any]] = []
        self.waiting_for: Mapping[str, Any] | None = None
        self.counts: Counter[State] = Counter({"waiting": len(self.tasks)})

    @property
    def ended(self) -> bool:
        """Say whether the run is over."""
        return self.state in ENDED

    def apply(self, event: Mapping[str, Any]) -> None:
        """Take in one event; kinds that are not known here change nothing."""
        self.heard = event.get("time", self.heard)
        take = _TAKE.get(event["event"])
        if take:
            take(self, event)

    def task(self, name: str) -> Task:
        """Return a task, new ones included."""
        if name not in self.tasks:
            self.tasks[name] = Task(name)
            self.counts["waiting"] += 1
        return self.tasks[name]

    def move(self, task: Task, state: State) -> None:
        """Put a task into another state, and keep count."""
        self.counts[task.state] -= 1
        self.counts[state] += 1
        task.state = state

    @property
    def waiting(self) -> Mapping[str, Any] | None:
        """Return for what tasks wait, as far as it was said since anything started."""
        return self.waiting_for if self.counts["waiting"] and not self.ended else None

    def seconds_of(self, attempt: Attempt, *, now: float) -> float | None:
        """Return how long an attempt took, or has taken until now; None if nobody knows."""
        if attempt.seconds is None and attempt.outcome is None and not self.ended:
            return round(max(0.0, now - attempt.started), 3)
        return attempt.seconds

    def seconds_until(self, end: float, *, began: float) -> float:
        """Return how long the run took if it ended then; `began` counts if it never said that it started."""
        return max(0.0, end - (self.started or began))

    def document(self, *, now: float, unsure: str | None = None) -> dict[str, Any]:
        """Return what `--json` prints (design.md, section 11).

        `unsure` says why the run may have gone on since: its cluster did not answer.
        """
        # Of a cluster that does not answer it is known until it last said something.
        now = now if unsure is None or self.heard is None else self.heard
        running = now - self.started if self.started else 0.0
        return {
            "run": self.run,
            "state": self.state,
            "cluster": self.cluster,
            "job": self.job,
            "seconds": round(self.seconds if self.seconds is not None else running, 3),
            "exit": self.exit,
            "error": self.error,
            "unsure": unsure,
            "checks": [_check_document(check) for check in self.checks],
            "waiting": self.waiting and {key: self.waiting[key] for key in ("tasks", "needs", "holders", "text")},
            "tasks": [_task_document(self, task, now=now) for task in self.tasks.values()],
        }


def load(run: RunDirectory) -> RunState:
    """Return how a run stands by what was recorded here."""
    record = run.record()
    state = RunState(run=run.name, cluster=record["cluster"], job=record.get("job"), tasks=record.get("tasks", ()))
    for event in store.events(run):
        state.apply(event)
    return state


def _run_started(run: RunState, event: Mapping[str, Any]) -> None:
    run.state, run.started, run.node_id = "running", event["time"], event.get("node_id")


def _check(run: RunState, event: Mapping[str, Any]) -> None:
    run.checks.append(event)


def _gate(run: RunState, event: Mapping[str, Any]) -> None:
    run.gate = event


def _attempt_started(run: RunState, event: Mapping[str, Any]) -> None:
    task = run.task(event["task"])
    task.attempts.append(Attempt(event["attempt"], event.get("node"), event["time"]))
    run.move(task, "running")
    run.waiting_for = None


def _attempt_ended(run: RunState, event: Mapping[str, Any]) -> None:
    task = run.task(event["task"])
    if not task.attempts or task.attempts[-1].number != event["attempt"]:
        task.attempts.append(Attempt(event["attempt"], event.get("node"), event["time"]))
    attempt = task.attempts[-1]
    attempt.outcome, attempt.exit_code = event["outcome"], event.get("exit_code")
    attempt.seconds, attempt.reason = event.get("seconds"), event.get("reason")
    if attempt.outcome != "succeeded" and run.counts["failed"] < TAILS_KEPT:
        attempt.tail = tuple(event.get("tail") or ())
    run.move(task, "waiting")


def _waiting(run: RunState, event: Mapping[str, Any]) -> None:
    run.waiting_for = event


def _task_ended(run: RunState, event: Mapping[str, Any]) -> None:
    run.task(event["task"]).ended_because = event.get("reason")
    run.move(run.task(event["task"]), event["state"])


def _checkpoint(run: RunState, event: Mapping[str, Any]) -> None:
    run.task(event["task"]).checkpoint = event


def _outputs(run: RunState, event: Mapping[str, Any]) -> None:
    task = run.task(event["task"])
    if event["whole"]:
        of_others = [kept for kept in task.archives if event["each_attempt"] and kept["attempt"] != event["attempt"]]
        task.archives = of_others
    task.archives.append(event)


def _run_ended(run: RunState, event: Mapping[str, Any]) -> None:
    run.state, run.seconds = event["state"], event["seconds"]
    run.exit = 0 if run.state == "succeeded" and not event["exit"] else event["exit"] or 1
    run.error, run.hint = event.get("error"), event.get("hint")
    end = (run.started or event["time"]) + event["seconds"]
    # Nobody stopped the tasks of a run whose runner is gone: they are lost with it, or never began.
    lost = event["state"] == "failed" and event.get("by") == "operator"
    for task in run.tasks.values():
        if task.state == "running" and task.attempts[-1].seconds is None:
            # Its runner died before it could say; it cannot have run for longer than the run.
            task.attempts[-1].seconds = round(max(0.0, end - task.attempts[-1].started), 3)
            if lost:
                task.attempts[-1].outcome, task.attempts[-1].reason = "lost", "the run's runner is gone"
        if lost and task.attempts and task.state not in ENDED:
            run.move(task, "failed")
        elif lost and not task.attempts:
            task.ended_because = "the run's runner is gone"
        elif not lost and task.state not in ENDED:
            run.move(task, "stopped")


_TAKE = {
    "run-started": _run_started,
    "check": _check,
    "gate": _gate,
    "attempt-started": _attempt_started,
    "attempt-ended": _attempt_ended,
    "waiting": _waiting,
    "task-ended": _task_ended,
    "checkpoint": _checkpoint,
    "outputs": _outputs,
    "run-ended": _run_ended,
}


def _task_document(run: RunState, task: Task, *, now: float) -> dict[str, Any]:
    return {
        "name": task.name,
        "state": task.state,
        "reason": task.reason,
        "attempts": [
            {
                "node": attempt.node,
                "exit_code": attempt.exit_code,
                "seconds": run.seconds_of(attempt, now=now),
                "reason": attempt.reason,
                "outcome": attempt.outcome,
            }
            for attempt in task.attempts
        ],
    }


def _check_document(check: Mapping[str, Any]) -> dict[str, Any]:
    return {key: check.get(key) for key in ("name", "node", "ok", "skipped", "detail", "seconds", "hint")}
