"""The events of a run, which the head writes and the operator reads.

Each kind is a dataclass. On the stream (`wire.stream`) an event is one JSON
object: `seq`, `time`, `event` (its kind), and its fields. docs/results.md
describes events to users. Later versions may add fields and kinds, but rename
none: a missing field has its default, and an unknown kind becomes an `Unknown`.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import cache
from typing import Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

from trainyard_runner.wire.outcome import State

TrialOutcome = Literal["complete", "pruned", "failed", "stopped"]
# The first limits dates (Unix seconds) and durations, the second sizes (bytes) and counts.
_SECONDS = 1e11
_BYTES = 1e16


@dataclass(frozen=True, kw_only=True)
class Event:
    """One event of a run.

    `seq` (0, 1, 2, ...) and `time` (Unix seconds) are the event's place in the
    stream.
    """

    kind: ClassVar[str]

    seq: int = -1
    time: float = 0.0

    def fields(self) -> dict[str, Any]:
        own = dict(vars(self))
        del own["seq"], own["time"]
        return own

    def line(self) -> dict[str, Any]:
        # The zeros only put `seq` and `time` first on the line: `vars` replaces them.
        return {"seq": 0, "time": 0.0, "event": self.kind, **vars(self)}


@dataclass(frozen=True)
class RunStarted(Event):
    """A run began on the head, whose Ray id is `node_id`.

    `checkpoints_at` is the directory of the run's checkpoints on storage that
    outlives the head; None if the checkpoints are on the head's disk.
    """

    kind = "run-started"

    run: str = ""
    job: str | None = None
    node_id: str | None = None
    ray: str | None = None
    python: str | None = None
    tasks: int = 0
    together: bool = False
    cluster: str = ""
    checkpoints_at: str | None = None


@dataclass(frozen=True)
class NodeFound(Event):
    """A node's hardware and versions; `memory` in bytes."""

    kind = "node"

    name: str
    group: str | None = None
    gpus: Sequence[str] = ()
    cpu: str | None = None
    cores: int | None = None
    memory: int | None = None
    system: str | None = None
    driver: str | None = None
    python: str | None = None
    ray: str | None = None
    packages: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Check(Event):
    """The result of one rung of the smoke test.

    `node` is None for a rung of the whole cluster. `ok` is also true for a rung
    that was skipped.
    """

    kind = "check"

    name: str
    node: str | None
    ok: bool
    detail: str
    seconds: float = 0.0
    skipped: bool = False
    hint: str | None = None


@dataclass(frozen=True)
class GateEnded(Event):
    """The smoke test as a whole passed or failed."""

    kind = "gate"

    ok: bool
    seconds: float


@dataclass(frozen=True)
class AttemptStarted(Event):
    """An attempt began; `node` is None if it ended without a node."""

    kind = "attempt-started"

    task: str
    attempt: int
    node: str | None = None
    node_id: str | None = None
    gpus: Sequence[str] = ()


@dataclass(frozen=True)
class TaskOutput(Event):
    """Output from byte `at` on; surrogates replace bytes that are not UTF-8."""

    kind = "output"

    task: str
    attempt: int
    at: int
    text: str


@dataclass(frozen=True)
class Metric(Event):
    """Values of the watched metric, each [step, value, seconds since 1970]."""

    kind = "metric"

    task: str
    attempt: int
    values: Sequence[Any]


@dataclass(frozen=True)
class CheckpointKept(Event):
    """The head keeps a checkpoint's archive until the next one replaces it.

    `bytes` and `files`: size and number of the files in the checkpoint.
    `archive_bytes` and `sha256`: size and digest of the archive, None in events
    that an older Trainyard wrote.
    """

    kind = "checkpoint"

    task: str
    attempt: int
    bytes: int = 0
    files: int = 0
    archive_bytes: int | None = None
    sha256: str | None = None


@dataclass(frozen=True)
class OutputsKept(Event):
    """The head has an archive of a task's outputs.

    `number` counts a task's archives from 1, over its attempts. A `whole`
    archive replaces earlier ones. Any other archive is unpacked over earlier
    ones, after the files `removed` are deleted. If `each_attempt`,
    these are the archives of the same attempt only.
    """

    kind = "outputs"

    task: str
    attempt: int
    number: int
    file: str
    bytes: int
    sha256: str
    whole: bool
    removed: Sequence[str]
    each_attempt: bool
    files: int = 0
    left_out: Sequence[str] = ()


@dataclass(frozen=True)
class AttemptEnded(Event):
    """An attempt ended.

    A field is None if the node was lost before it could report the value.
    `output` is the attempt's last archive, {file, bytes, sha256}; `brought` its
    outputs on the head, {files, bytes}; `not_brought` and `undeclared` are
    files, {count, names, more}. `watch` is the rule of the watchdog that ended
    the attempt.
    """

    kind = "attempt-ended"

    task: str
    attempt: int
    outcome: str
    node: str | None = None
    exit_code: int | None = None
    seconds: float | None = None
    reason: str | None = None
    tail: Sequence[str] = ()
    cpu_seconds: float | None = None
    max_rss: int | None = None
    output: Mapping[str, Any] | None = None
    lost_outputs: Sequence[str] = ()
    absent_outputs: Sequence[str] = ()
    brought: Mapping[str, Any] | None = None
    not_brought: Mapping[str, Any] | None = None
    undeclared: Mapping[str, Any] | None = None
    watch: str | None = None


@dataclass(frozen=True)
class TaskEnded(Event):
    """A task has ended for good; `reason` defaults to the last attempt's."""

    kind = "task-ended"

    task: str
    state: State
    attempts: int = 0
    reason: str | None = None


@dataclass(frozen=True)
class TrialStarted(Event):
    """A sweep tries a configuration, with one task for each repeat.

    `tasks` lacks the repeats that a former run finished; it is [] if that run
    finished them all.
    """

    kind = "trial-started"

    trial: int
    params: Mapping[str, Any]
    tasks: Sequence[str]


@dataclass(frozen=True)
class TrialEnded(Event):
    """A configuration has ended: its value, and the values of its repeats."""

    kind = "trial-ended"

    trial: int
    outcome: TrialOutcome
    value: Any = None
    values: Sequence[Any] = ()
    reason: str | None = None


@dataclass(frozen=True)
class StudyGrown(Event):
    """New text of a sweep's Optuna journal, from byte `at` on."""

    kind = "study"

    at: int
    text: str


@dataclass(frozen=True)
class Waiting(Event):
    """Tasks wait for resources; `tasks` is their number.

    `needs`: what one waiting unit asks for. `holders`: the runs that hold these
    resources, or need them free for actors. `again`: an earlier event had the
    same reasons, with other numbers.
    """

    kind = "waiting"

    text: str
    tasks: int = 0
    needs: Sequence[str] = ()
    holders: Sequence[str] = ()
    again: bool = False


@dataclass(frozen=True)
class DriversWaiting(Event):
    """Ray tasks and actors of running tasks wait.

    `text` is the reason, or "" once none of them waits.
    """

    kind = "drivers-waiting"

    text: str
    again: bool = False


@dataclass(frozen=True)
class KeptFree(Event):
    """Resources kept free for Ray tasks and actors of running tasks."""

    kind = "kept-free"

    room: Mapping[str, Any]


@dataclass(frozen=True)
class Note(Event):
    """A remark for the user."""

    kind = "note"

    text: str


@dataclass(frozen=True)
class Continues(Event):
    """The last line of a full segment, which names the `next` segment."""

    kind = "continues"

    next: str = ""


@dataclass(frozen=True)
class RunEnded(Event):
    """A run ended, with the exit code of `train.dispatch`.

    `sweep` is the result of a sweep, {reason, samples, best}. `by` is
    "operator" if the runner died before it could write this event.
    """

    kind = "run-ended"

    state: State
    exit: int
    seconds: float = 0.0
    counts: Mapping[Any, int] | None = None
    error: str | None = None
    hint: str | None = None
    sweep: Mapping[str, Any] | None = None
    by: str | None = None


@dataclass(frozen=True)
class Unknown(Event):
    """An event of a later version."""

    kind = "unknown"


_KINDS: dict[str, type[Event]] = {cls.kind: cls for cls in Event.__subclasses__()}


def read(line: object) -> Event:
    """Return a line's event. Raises ValueError for JSON that is no event.

    >>> read({"seq": 3, "time": 1.5, "event": "note", "text": "hi", "new": 0})
    Note(seq=3, time=1.5, text='hi')
    """
    if not isinstance(line, dict):
        raise ValueError("it is no JSON object")
    kind = line.get("event")
    if not isinstance(kind, str):
        raise ValueError("event is missing")

    cls = _KINDS.get(kind, Unknown)
    given: dict[str, Any] = {}
    for name, (hint, is_required) in _field_types()[cls.kind].items():
        value = line.get(name)
        if value is None and not is_required:
            continue
        if value is None and not _fits(None, hint):
            raise ValueError(f"{name} is missing")
        if not _fits(value, hint):
            raise ValueError(f"{name} is {repr(value)[:80]}")
        given[name] = value

    event = cls(**given)
    if isinstance(event, Metric) and not all(map(_is_point, event.values)):
        raise ValueError(f"values is {repr(event.values)[:80]}")
    return event


@cache
def _field_types() -> dict[str, dict[str, tuple[Any, bool]]]:
    """Return, by kind and field, the type and whether a line must have it."""
    kinds: dict[str, dict[str, tuple[Any, bool]]] = {}
    for cls in _KINDS.values():
        hints = get_type_hints(cls)
        of_kind = kinds[cls.kind] = {}
        for each in fields(cls):
            is_required = each.default is MISSING or each.name in ("seq", "time")
            of_kind[each.name] = (hints[each.name], is_required)
    return kinds


def _fits(value: object, hint: Any) -> bool:
    """Return whether a JSON value is of a type.

    Raises ValueError for text that cannot be encoded.
    """
    origin, arguments = _taken_apart(hint)
    if origin in (Union, types.UnionType):
        return any(_fits(value, one) for one in arguments)
    if origin is Literal:
        return value in arguments
    if origin is Sequence:
        return isinstance(value, list) and all(_fits(item, arguments[0]) for item in value)
    if origin is Mapping:
        return isinstance(value, dict)
    return hint is Any or _fits_plain(value, hint)


@cache
def _taken_apart(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """Take a type apart; the cache saves `read` a third of its time."""
    return get_origin(hint), get_args(hint)


def _fits_plain(value: object, hint: Any) -> bool:
    if isinstance(value, str):
        # The surrogates U+DC80 to U+DCFF represent bytes that are not UTF-8. Any other surrogate
        # raises a ValueError here.
        value.encode("utf-8", "surrogateescape")
        return hint is str
    # NaN compares as False and is thus rejected.
    if hint is float and type(value) in (int, float):
        return -1e9 < value < _SECONDS  # type: ignore[operator]
    if hint is int and type(value) is int:
        return -1e9 < value < _BYTES
    return type(value) is hint


def _is_point(value: object) -> bool:
    """Return whether a value is [step, value, seconds since 1970]."""
    if not isinstance(value, list) or len(value) != 3:
        return False
    return all(type(number) is float or _is_whole(number) for number in value)


def _is_whole(number: object) -> bool:
    """Return whether a value is a whole number that fits into a float."""
    return type(number) is int and abs(number) <= sys.float_info.max
