"""How a run stands: its events, folded into tasks and attempts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from trainyard_runner.wire.room import NO_ROOM, Room

from trainyard.results.attempt_files import AttemptFiles
from trainyard.results.journal import recorded
from trainyard.results.store import RunDirectory
from trainyard.results.sweep import Sweep

State = Literal["waiting", "running", "succeeded", "failed", "stopped"]
# A task of a resumed run may have succeeded before.
TaskState = State | Literal["skipped"]
ENDED: tuple[TaskState, ...] = ("succeeded", "failed", "stopped", "skipped")
# What may become of an attempt; the report has a look for each.
KINDS = ("succeeded", "running", "failed", "timeout", "lost", "stopped")
_NOTES_KEPT = 50
_CHECK = ("name", "node", "ok", "skipped", "detail", "seconds", "hint")
# Of an attempt, in a document.
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
    checkpoint_at: float | None = None  # when the last of them was saved
    continues: int | None = None  # the attempt whose checkpoint it began from
    files: AttemptFiles | None = None  # what it left; None: its node has not said it

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
    checkpoint: Mapping[str, Any] | None = None
    ended_because: str | None = None  # where that is not the reason of its last attempt
    # What it left, as archives on the cluster: the events "outputs" since the last whole one (of
    # each attempt).
    archives: list[Mapping[str, Any]] = field(default_factory=list)

    @property
    def last(self) -> Attempt:
        """Return its last attempt; of a task that has none, one of which nothing is known."""
        if self.attempts:
            return self.attempts[-1]
        return Attempt(self.name, 0, None, 0.0, outcome="none")

    @property
    def files(self) -> tuple[AttemptFiles, ...]:
        """Return what its attempts left of which outputs are kept: the last one, or each; none of
        those unknown.
        """
        each = bool(self.archives) and self.archives[0]["each_attempt"]
        attempts = self.attempts if each else self.attempts[-1:]
        return tuple(attempt.files for attempt in attempts if attempt.files)

    @property
    def reason(self) -> str | None:
        """Return why it has ended, if that is worth a word; one that no node has begun never
        ran.
        """
        reason = self.ended_because or self.last.reason
        if self.state == "skipped":
            return reason
        if (self.state in ENDED or self.ended_because) and not any(
            attempt.node for attempt in self.attempts
        ):
            if reason:
                return f"never ran: {reason}"
            return "never ran"
        return reason

    def attempt(self, event: Mapping[str, Any]) -> Attempt:
        if not self.attempts or self.attempts[-1].number != event["attempt"]:
            self.attempts.append(
                Attempt(self.name, event["attempt"], event.get("node"), event["time"])
            )
        return self.attempts[-1]

    def add_archive(self, event: Mapping[str, Any]) -> None:
        if event["whole"]:
            each = event["each_attempt"]
            attempt = event["attempt"]
            self.archives = [kept for kept in self.archives if each and kept["attempt"] != attempt]
        self.archives.append(event)


class RunState:
    """The one place that understands events; fed live while a run is followed, or from events.jsonl
    later.
    """

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
        """Begin with what is known before the first event.

        `tune` is that section of its job file, `resumes` what run.json says of the run that this
        one resumes.
        """
        self.run = run
        self.cluster = cluster
        self.job = job
        self.tasks = {name: Task(name) for name in tasks}
        self.state: State = "waiting"
        self.started: float | None = None
        self.last_contact: float | None = None  # when it last said something
        self.seconds: float | None = None
        self.node_id: str | None = None
        # The directory, on storage that outlives the head, with its checkpoints; None: they are on
        # the head's disk.
        self.checkpoints_at: str | None = None
        self.exit: int | None = None
        self.error: str | None = None
        self.hint: str | None = None
        self.gate: Mapping[str, Any] | None = None
        self.checks: list[Mapping[str, Any]] = []
        self.notes: list[str] = []
        self.nodes: dict[str, Mapping[str, Any]] = {}
        self.counts: Counter[TaskState] = Counter({"waiting": len(self.tasks)})
        self.sweep = Sweep(tune) if tune else None
        self.resumes = resumes
        self._waiting: Mapping[str, Any] | None = None
        self._drivers_waiting: Mapping[str, Any] | None = None
        self._kept_free = NO_ROOM

        for name in resumes["skipped"] if resumes else ():
            skipped = self.task(name)
            if resumes:
                skipped.ended_because = f"succeeded in {resumes['run']}"
            else:
                skipped.ended_because = None
            self._move(skipped, "skipped")

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    @property
    def waiting(self) -> Mapping[str, Any] | None:
        """Return for what tasks wait, as far as it was said since anything started.

        Without such tasks: for what waits that running tasks started through Ray.
        """
        if self.ended:
            return None
        if self.counts["waiting"] and self._waiting:
            return self._waiting
        return self._drivers_waiting

    @property
    def kept_free(self) -> Room:
        """Return the room that is left free now for what tasks start through Ray."""
        return NO_ROOM if self.ended else self._kept_free

    def apply(self, event: Mapping[str, Any]) -> None:
        """Take in one event; kinds that are not known here change nothing."""
        self.last_contact = event.get("time", self.last_contact)
        match event["event"]:
            case "run-started":
                self.state = "running"
                self.started = event["time"]
                self.node_id = event.get("node_id")
                self.checkpoints_at = event.get("checkpoints_at")
            case "check":
                self.checks.append({key: event.get(key) for key in _CHECK})
            case "gate":
                self.gate = event
            case "node":
                self.nodes[event["name"]] = event
            case "note":
                self.notes += [event["text"]] if len(self.notes) < _NOTES_KEPT else []
            case "waiting" | "kept-free" | "drivers-waiting":
                self._apply_waiting(event)
            case "attempt-started" | "attempt-ended" | "task-ended" | "checkpoint" | "outputs":
                self._apply_to_task(self.task(event["task"]), event)
            case "trial-started" | "trial-ended" if self.sweep:
                self.sweep.apply(event)
            case "run-ended":
                self._ended(event)

    def _apply_waiting(self, event: Mapping[str, Any]) -> None:
        """Take in for what tasks wait, or what is left free for them."""
        match event["event"]:
            case "waiting":
                self._waiting = event
            case "kept-free":
                self._kept_free = Room.of(event["room"])
            case "drivers-waiting":
                of_drivers = {"tasks": 0, "needs": [], "holders": [], **event}
                self._drivers_waiting = of_drivers if event["text"] else None

    def _apply_to_task(self, task: Task, event: Mapping[str, Any]) -> None:
        match event["event"]:
            case "attempt-started":
                self._attempt_started(task, event)
            case "attempt-ended":
                self._attempt_ended(task, event)
            case "task-ended":
                task.ended_because = event.get("reason")
                self._move(task, event["state"])
            case "checkpoint":
                self._checkpoint(task, event)
            case "outputs":
                task.add_archive(event)

    @property
    def resume_command(self) -> str:
        return f"trainyard {'tune' if self.sweep else 'train'}.resume {self.run}"

    @property
    def done(self) -> int:
        """Return how many tasks succeeded, here or in the run that this one resumes."""
        return self.counts["succeeded"] + self.counts["skipped"]

    def task(self, name: str) -> Task:
        if name not in self.tasks:
            self.tasks[name] = Task(name)
            self.counts["waiting"] += 1
        return self.tasks[name]

    def attempts(self) -> list[Attempt]:
        return [attempt for task in self.tasks.values() for attempt in task.attempts]

    def seconds_of(self, attempt: Attempt, *, now: float | None = None) -> float | None:
        """Return how long an attempt took, or has taken until now, else by what is known; None if
        nobody knows.
        """
        now = now or self.last_contact
        if attempt.seconds is None and attempt.outcome is None and not self.ended and now:
            return round(max(0.0, now - attempt.started), 3)
        return attempt.seconds

    def summary(self) -> dict[str, Any]:
        """Return what `--json` prints of it among others."""
        counts = {name: count for name, count in self.counts.items() if count}
        about = {"run": self.run, "state": self.state, "cluster": self.cluster, "job": self.job}
        if self.resumes:
            about["resumes"] = self.resumes["run"]
        else:
            about["resumes"] = None
        return {**about, "seconds": self.seconds, "counts": counts}

    def document(self, *, now: float, unsure: str | None = None) -> dict[str, Any]:
        """Return what `--json` prints; `unsure` says why the run may have gone on since: its
        cluster is silent.
        """
        # Of a cluster that does not answer it is known until it last said something.
        if unsure is None or self.last_contact is None:
            now = now
        else:
            now = self.last_contact

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
            "resumes": self.resumes and self.resumes["run"],
            "checks": self.checks,
            "waiting": self.waiting
            and {key: self.waiting[key] for key in ("tasks", "needs", "holders", "text")},
            "kept_free": asdict(self.kept_free) if self.kept_free else None,
            "tasks": [self._task_document(task, now=now) for task in self.tasks.values()],
            **(self.sweep.document() if self.sweep else {}),
        }

    def _task_document(self, task: Task, *, now: float) -> dict[str, Any]:
        attempts = []
        for attempt in task.attempts:
            attempts.append(
                {
                    **{key: getattr(attempt, key) for key in _SHOWN},
                    "seconds": self.seconds_of(attempt, now=now),
                    "files": attempt.files and attempt.files.document(),
                }
            )
        return {"name": task.name, "state": task.state, "reason": task.reason, "attempts": attempts}

    def _move(self, task: Task, state: TaskState) -> None:
        self.counts[task.state] -= 1
        self.counts[state] += 1
        task.state = state

    def _attempt_started(self, task: Task, event: Mapping[str, Any]) -> None:
        attempt = task.attempt(event)
        attempt.gpus = ", ".join(event.get("gpus") or ())
        if task.checkpoint:
            attempt.continues = task.checkpoint["attempt"]
        else:
            attempt.continues = None
        self._move(task, "running")
        self._waiting = None

    def _attempt_ended(self, task: Task, event: Mapping[str, Any]) -> None:
        attempt = task.attempt(event)
        attempt.outcome = event["outcome"]
        attempt.exit_code = event.get("exit_code")
        attempt.seconds = event.get("seconds")
        attempt.reason = event.get("reason")
        attempt.cpu_seconds = event.get("cpu_seconds")
        attempt.memory = event.get("max_rss")
        if attempt.outcome == "succeeded":
            attempt.tail = ()
        else:
            attempt.tail = tuple(event.get("tail") or ())
        attempt.files = AttemptFiles.of(event)
        self._move(task, "waiting")

    def _checkpoint(self, task: Task, event: Mapping[str, Any]) -> None:
        task.checkpoint = event
        attempt = task.attempt(event)
        attempt.checkpoints = attempt.checkpoints + 1
        attempt.checkpoint_at = event["time"]

    def _ended(self, event: Mapping[str, Any]) -> None:
        self.state = event["state"]
        self.seconds = event["seconds"]
        if self.state == "succeeded" and not event["exit"]:
            self.exit = 0
        else:
            self.exit = event["exit"] or 1

        self.error = event.get("error")
        self.hint = event.get("hint")
        if self.sweep:
            self.sweep.apply(event)

        end = (self.started or event["time"]) + event["seconds"]
        # Nobody stopped the tasks of a run whose runner is gone: they are lost with it, or never
        # began.
        lost = event["state"] == "failed" and event.get("by") == "operator"
        for task in self.tasks.values():
            attempt = task.last
            if task.state == "running" and attempt.seconds is None:
                # Its runner died before it could say; it cannot have run for longer than the run.
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
    """Return how a run stands before its first event."""
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
    """Return what run.json says of the run that a run resumes, if that is what it should be."""
    if not isinstance(recorded, dict) or not isinstance(recorded.get("run"), str):
        return None
    skipped = recorded.get("skipped")
    return {
        **recorded,
        "skipped": [name for name in skipped if isinstance(name, str)]
        if isinstance(skipped, list)
        else [],
    }
