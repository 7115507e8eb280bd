"""The state of a run, its tasks and attempts, computed from its events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from trainyard_runner.wire.events import (
    AttemptEnded,
    AttemptStarted,
    Check,
    CheckpointKept,
    DriversWaiting,
    Event,
    GateEnded,
    KeptFree,
    NodeFound,
    Note,
    OutputsKept,
    RunEnded,
    RunStarted,
    TaskEnded,
    TrialEnded,
    TrialStarted,
    Waiting,
)
from trainyard_runner.wire.room import NO_ROOM, Room

from trainyard.results import store
from trainyard.results.attempt_files import AttemptFiles
from trainyard.results.journal import recorded
from trainyard.results.store import RunDirectory
from trainyard.results.sweep import Sweep

State = Literal["waiting", "running", "succeeded", "failed", "stopped"]
# A run that resumes another one skips the tasks that succeeded in the former run.
TaskState = State | Literal["skipped"]
ENDED: tuple[TaskState, ...] = ("succeeded", "failed", "stopped", "skipped")
# The outcomes of attempts that the report draws differently.
KINDS = ("succeeded", "running", "failed", "timeout", "lost", "stopped")
_NOTES_KEPT = 50
# The fields of a Waiting in a document.
_WAITING = ("tasks", "needs", "holders", "text")
# The fields of an attempt in a document.
_SHOWN = ("node", "exit_code", "seconds", "reason", "outcome")


@dataclass
class Attempt:
    """One try of a task."""

    task: str
    number: int
    node: str | None
    started: float
    gpus: str = ""
    outcome: str | None = None
    exit_code: int | None = None
    seconds: float | None = None
    reason: str | None = None
    tail: tuple[str, ...] = ()
    cpu_seconds: float | None = None
    memory: int | None = None  # bytes, at its peak
    checkpoints: int = 0
    checkpoint_at: float | None = None  # when the last checkpoint was saved
    continues: int | None = None  # the attempt from whose checkpoint this one began
    files: AttemptFiles | None = None  # None: the node has not reported them

    @property
    def kind(self) -> str:
        if self.outcome is None:
            return "running"
        if self.outcome in KINDS:
            return self.outcome
        return "failed"


@dataclass
class Task:
    """One task and its attempts."""

    name: str
    state: TaskState = "waiting"
    attempts: list[Attempt] = field(default_factory=list)
    checkpoint: CheckpointKept | None = None  # the last one
    ended_because: str | None = None  # None: see the reason of the last attempt
    # The archives of the task's outputs on the cluster. A whole archive replaces all earlier ones;
    # with outputs_each_attempt, only those of its attempt.
    archives: list[OutputsKept] = field(default_factory=list)

    @property
    def last(self) -> Attempt:
        """Return the last attempt, or one with the outcome "none"."""
        if self.attempts:
            return self.attempts[-1]
        return Attempt(self.name, 0, None, 0.0, outcome="none")

    @property
    def files(self) -> tuple[AttemptFiles, ...]:
        """Return the last attempt's files.

        With outputs_each_attempt, returns the files of all attempts. Attempts
        with unknown files are left out.
        """
        attempts = self.attempts[-1:]
        if self.archives and self.archives[0].each_attempt:
            attempts = self.attempts
        return tuple(attempt.files for attempt in attempts if attempt.files)

    @property
    def reason(self) -> str | None:
        """Return why the task ended, if known, or that it never ran."""
        reason = self.ended_because or self.last.reason
        if self.state == "skipped":
            return reason

        has_ended = self.state in ENDED or self.ended_because
        if not has_ended or any(attempt.node for attempt in self.attempts):
            return reason
        if reason:
            return f"never ran: {reason}"
        return "never ran"

    def missing(self, run: RunDirectory) -> list[OutputsKept]:
        """Return the archives that were not yet fetched to this machine."""
        if not self.archives:
            return []
        last = store.fetched(run.outputs(self.name))
        return [archive for archive in tuple(self.archives) if archive.number > last]

    def attempt(self, event: AttemptStarted | AttemptEnded | CheckpointKept) -> Attempt:
        """Return an event's attempt; add it if it is new."""
        if not self.attempts or self.attempts[-1].number != event.attempt:
            node = None if isinstance(event, CheckpointKept) else event.node
            self.attempts.append(Attempt(self.name, event.attempt, node, event.time))
        return self.attempts[-1]

    def add_archive(self, event: OutputsKept) -> None:
        if event.whole:
            kept = []
            if event.each_attempt:
                kept = [other for other in self.archives if other.attempt != event.attempt]
            self.archives = kept
        self.archives.append(event)


class RunState:
    """The state of a run, which `apply` updates with each event."""

    def __init__(
        self,
        *,
        run: str,
        cluster: str,
        job: str | None,
        tasks: Iterable[str] = (),
        tune: Mapping[str, Any] | None = None,
        resumes: Mapping[str, Any] | None = None,
    ) -> None:
        """Begin with the state before the first event.

        `tune` is the job file's section. `resumes` is run.json's entry about
        the run that this one resumes.
        """
        self.run = run
        self.cluster = cluster
        self.job = job
        self.tasks = {name: Task(name) for name in tasks}
        self.state: State = "waiting"
        self.started: float | None = None
        self.last_contact: float | None = None  # the time of the newest event
        self.seconds: float | None = None
        self.node_id: str | None = None
        # Where checkpoints are, on storage that outlives the head; None if on the head's disk.
        self.checkpoints_at: str | None = None
        self.exit: int | None = None
        self.error: str | None = None
        self.hint: str | None = None
        self.gate: GateEnded | None = None
        self.checks: list[Check] = []
        self.notes: list[str] = []
        self.nodes: dict[str, NodeFound] = {}
        self.counts: Counter[TaskState] = Counter({"waiting": len(self.tasks)})
        self.sweep = Sweep(tune) if tune else None
        self.resumes = resumes
        self._waiting: Waiting | None = None
        self._drivers_waiting: Waiting | None = None
        self._kept_free = NO_ROOM

        if resumes:
            for name in resumes["skipped"]:
                skipped = self.task(name)
                skipped.ended_because = f"succeeded in {resumes['run']}"
                self._move(skipped, "skipped")

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    @property
    def waiting(self) -> Waiting | None:
        """Return the event that says what tasks wait for, if any.

        When no task waits, or one has just started, the event is about Ray
        tasks and actors of running tasks.
        """
        if self.ended:
            return None
        if self.counts["waiting"] and self._waiting:
            return self._waiting
        return self._drivers_waiting

    @property
    def kept_free(self) -> Room:
        """Return the resources kept free for tasks' actors and Ray tasks."""
        if self.ended:
            return NO_ROOM
        return self._kept_free

    def apply(self, event: Event) -> None:
        """Update the state; unknown events change only `last_contact`."""
        self.last_contact = event.time
        match event:
            case RunStarted():
                self.state = "running"
                self.started = event.time
                self.node_id = event.node_id
                self.checkpoints_at = event.checkpoints_at
            case Check():
                self.checks.append(event)
            case GateEnded():
                self.gate = event
            case NodeFound():
                self.nodes[event.name] = event
            case Note() if len(self.notes) < _NOTES_KEPT:
                self.notes.append(event.text)
            case Waiting() | KeptFree() | DriversWaiting():
                self._apply_waiting(event)
            case AttemptStarted() | AttemptEnded() | TaskEnded() | CheckpointKept() | OutputsKept():
                self._apply_to_task(self.task(event.task), event)
            case TrialStarted() | TrialEnded() if self.sweep:
                self.sweep.apply(event)
            case RunEnded():
                self._ended(event)

    def _apply_waiting(self, event: Waiting | KeptFree | DriversWaiting) -> None:
        match event:
            case Waiting():
                self._waiting = event
            case KeptFree():
                self._kept_free = Room.of(event.room)
            case DriversWaiting():
                self._drivers_waiting = None
                if event.text:
                    self._drivers_waiting = Waiting(event.text)

    def _apply_to_task(
        self,
        task: Task,
        event: AttemptStarted | AttemptEnded | TaskEnded | CheckpointKept | OutputsKept,
    ) -> None:
        match event:
            case AttemptStarted():
                self._attempt_started(task, event)
            case AttemptEnded():
                self._attempt_ended(task, event)
            case TaskEnded():
                task.ended_because = event.reason
                self._move(task, event.state)
            case CheckpointKept():
                self._checkpoint(task, event)
            case OutputsKept():
                task.add_archive(event)

    @property
    def resume_command(self) -> str:
        if self.sweep:
            return f"trainyard tune.resume {self.run}"
        return f"trainyard train.resume {self.run}"

    @property
    def done(self) -> int:
        """Count tasks that succeeded, in this run or the one it resumes."""
        return self.counts["succeeded"] + self.counts["skipped"]

    def task(self, name: str) -> Task:
        if name not in self.tasks:
            self.tasks[name] = Task(name)
            self.counts["waiting"] += 1
        return self.tasks[name]

    def attempts(self) -> list[Attempt]:
        attempts: list[Attempt] = []
        for task in self.tasks.values():
            attempts += task.attempts
        return attempts

    def seconds_of(self, attempt: Attempt, *, now: float | None = None) -> float | None:
        """Return the seconds of an attempt until `now`; None if unknown.

        `now` is by default the time of the newest event.
        """
        now = now or self.last_contact
        if attempt.seconds is None and attempt.outcome is None and not self.ended and now:
            return round(max(0.0, now - attempt.started), 3)
        return attempt.seconds

    def summary(self) -> dict[str, Any]:
        """Return the run's line in a list that `--json` prints."""
        return {
            "run": self.run,
            "state": self.state,
            "cluster": self.cluster,
            "job": self.job,
            "resumes": self.resumes and self.resumes["run"],
            "seconds": self.seconds,
            "counts": {name: count for name, count in self.counts.items() if count},
        }

    def document(self, *, now: float, unsure: str | None = None) -> dict[str, Any]:
        """Return what `--json` prints.

        `unsure` says why newer events may be missing, such as a cluster that
        does not answer.
        """
        # If newer events may be missing, the duration is known only up to the newest event.
        if unsure is not None and self.last_contact is not None:
            now = self.last_contact

        seconds = self.seconds
        if seconds is None:
            seconds = now - self.started if self.started else 0.0

        waiting = None
        if self.waiting is not None:
            waiting = {key: getattr(self.waiting, key) for key in _WAITING}

        document = {
            "run": self.run,
            "state": self.state,
            "cluster": self.cluster,
            "job": self.job,
            "seconds": round(seconds, 3),
            "exit": self.exit,
            "error": self.error,
            "unsure": unsure,
            "resumes": self.resumes and self.resumes["run"],
            "checks": [check.fields() for check in self.checks],
            "waiting": waiting,
            "kept_free": asdict(self.kept_free) if self.kept_free else None,
            "tasks": [self._task_document(task, now=now) for task in self.tasks.values()],
        }
        if self.sweep:
            document |= self.sweep.document()
        return document

    def _task_document(self, task: Task, *, now: float) -> dict[str, Any]:
        attempts = []
        for attempt in task.attempts:
            entry = {key: getattr(attempt, key) for key in _SHOWN}
            entry["seconds"] = self.seconds_of(attempt, now=now)
            entry["files"] = attempt.files and asdict(attempt.files)
            attempts.append(entry)
        return {"name": task.name, "state": task.state, "reason": task.reason, "attempts": attempts}

    def _move(self, task: Task, state: TaskState) -> None:
        self.counts[task.state] -= 1
        self.counts[state] += 1
        task.state = state

    def _attempt_started(self, task: Task, event: AttemptStarted) -> None:
        attempt = task.attempt(event)
        attempt.gpus = ", ".join(event.gpus)
        attempt.continues = None
        if task.checkpoint:
            attempt.continues = task.checkpoint.attempt
        self._move(task, "running")
        self._waiting = None

    def _attempt_ended(self, task: Task, event: AttemptEnded) -> None:
        attempt = task.attempt(event)
        attempt.outcome = event.outcome
        attempt.exit_code = event.exit_code
        attempt.seconds = event.seconds
        attempt.reason = event.reason
        attempt.cpu_seconds = event.cpu_seconds
        attempt.memory = event.max_rss
        attempt.tail = ()
        if attempt.outcome != "succeeded":
            attempt.tail = tuple(event.tail)
        attempt.files = AttemptFiles.of(event)
        self._move(task, "waiting")

    def _checkpoint(self, task: Task, event: CheckpointKept) -> None:
        task.checkpoint = event
        attempt = task.attempt(event)
        attempt.checkpoints += 1
        attempt.checkpoint_at = event.time

    def _ended(self, event: RunEnded) -> None:
        self.state = event.state
        self.seconds = event.seconds
        if self.state == "succeeded" and not event.exit:
            self.exit = 0
        else:
            self.exit = event.exit or 1

        self.error = event.error
        self.hint = event.hint
        if self.sweep:
            self.sweep.apply(event)

        end = (self.started or event.time) + event.seconds
        # If the runner is gone, unfinished tasks were lost or never began; none was stopped.
        lost = event.state == "failed" and event.by == "operator"
        for task in self.tasks.values():
            attempt = task.last
            if task.state == "running" and attempt.seconds is None:
                # The runner died before it reported the attempt's end: take the run's end.
                attempt.seconds = round(max(0.0, end - attempt.started), 3)
                if lost:
                    attempt.outcome = "lost"
                    attempt.reason = "the run's runner is gone"

            if lost and not task.attempts and task.state not in ENDED:
                task.ended_because = "the run's runner is gone"
            elif task.state not in ENDED:
                self._move(task, "failed" if lost else "stopped")


def load(run: RunDirectory) -> RunState:
    state = fresh(run)
    for event in recorded(run):
        state.apply(event)
    return state


def fresh(run: RunDirectory) -> RunState:
    """Return the state of a run before its first event."""
    record = run.record()
    return RunState(
        run=run.name,
        cluster=record["cluster"],
        job=record.get("job"),
        tasks=record["tasks"],
        tune=record.get("tune"),
        resumes=_resumes(record.get("resumes")),
    )


def _resumes(recorded: object) -> Mapping[str, Any] | None:
    """Return run.json's entry `resumes`, if it is well-formed."""
    if not isinstance(recorded, dict) or not isinstance(recorded.get("run"), str):
        return None
    skipped: list[str] = []
    if isinstance(recorded.get("skipped"), list):
        skipped = [name for name in recorded["skipped"] if isinstance(name, str)]
    return {**recorded, "skipped": skipped}
