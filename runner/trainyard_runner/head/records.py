"""The head's records of a run: the event stream, outputs, checkpoints."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainyard_runner.head import durable
from trainyard_runner.head.job_log import JobLog
from trainyard_runner.head.losses import Ending
from trainyard_runner.wire import names
from trainyard_runner.wire.archive import PART, Incoming
from trainyard_runner.wire.events import (
    AttemptEnded,
    AttemptStarted,
    CheckpointKept,
    Metric,
    Note,
    OutputsKept,
    TaskOutput,
)
from trainyard_runner.wire.stream import EventStream

# An event has at most this many values of the watched metric.
_VALUES_AT_ONCE = 10_000
# Messages that the head stores in files. After a failed write, the head drops the attempt's later
# messages of these kinds only.
_KEPT = ("output", "checkpoint-part", "checkpoint", "checkpoint-dropped", "outputs-part", "outputs")


@dataclass
class AttemptRecord:
    """The state of one attempt, built from its messages.

    `ended`: the content of its message `ended`. `printed`: bytes of output so
    far. `is_ready`: the task of a gang is placed and waits for the rest of the
    gang. `incoming`: archives that have not arrived in full, by file. `output`:
    the last archive of outputs. `tail`: the end of what the task printed.
    """

    task: str
    attempt: int
    node: str | None = None
    node_id: str | None = None
    ended: dict[str, Any] | None = None
    printed: int = 0
    is_ready: bool = False
    is_started: bool = False
    incoming: dict[str, Incoming] = field(default_factory=dict)
    output: dict[str, Any] | None = None
    tail: str = ""
    began: float = 0.0
    # Why the head could not store a message of the attempt.
    failure: str | None = None


class Records:
    """Turns an attempt's messages into events and files."""

    def __init__(
        self,
        directory: Path,
        stream: EventStream,
        *,
        node: str,
        node_name: Callable[[str], str],
        each_attempt: bool,
        job_log: JobLog,
        storage: str | None = None,
    ) -> None:
        """Keep the records of a run in `directory` on the head.

        `node`: the name of the head's node. `node_name` returns the name of the
        node with an id. `each_attempt`: no attempt begins with the outputs of
        the attempt before. `storage`: a directory that outlives the head and
        may have former runs' checkpoints.
        """
        self._directory = directory
        self._stream = stream
        self._node = node
        self.node_name = node_name
        self._each_attempt = each_attempt
        self._job_log = job_log
        self._storage = storage
        self._archives: dict[tuple[str, int], list[OutputsKept]] = {}
        self._numbers: Counter[str] = Counter()
        # By task: outputs of its last attempt that could not be sent to the head, with reasons.
        self.lost_outputs: dict[str, list[str]] = {}
        # By task: the declared outputs that its last attempt did not write.
        self.absent_outputs: dict[str, list[str]] = {}
        # In a sweep, this is set to Sweep.metric.
        self.on_metric: Callable[[AttemptRecord, list[list[float]]], None] | None = None

        self._handlers: dict[str, Callable[[AttemptRecord, Any], None]] = {
            "ready": self._ready,
            "started": self._started,
            "output": self._output,
            "metric": self._metric,
            "note": self._noted,
            "checkpoint-part": self._checkpoint_part,
            "checkpoint-dropped": self._checkpoint_dropped,
            "checkpoint": self._checkpoint_arrived,
            "outputs-part": self._outputs_part,
            "outputs": self._outputs_arrived,
            "ended": self._ended,
        }

    def apply(self, record: AttemptRecord, batch: list[tuple[str, Any]]) -> None:
        """Turn an attempt's messages into events and files.

        If the head cannot write a file, the record's `failure` says why. From
        then on, the attempt's output, checkpoints and outputs are dropped.
        """
        for kind, content in batch:
            if record.failure and kind in _KEPT:
                continue
            try:
                self._handlers[kind](record, content)
            except OSError as error:
                record.failure = f"{(error.strerror or str(error)).lower()}, node {self._node}"
                self._drop_all(record)

    def end(self, record: AttemptRecord, ending: Ending) -> None:
        """Write the event of an attempt's end.

        If the attempt never started, writes the event of its start first. Drops
        archives that have not arrived in full. Fields that the node did not
        send are null.
        """
        self._drop_all(record)
        self._job_log.ended(record.task)
        if not record.is_started:
            self._started(record, {"node_id": None, "gpus": []})

        said = record.ended or {"seconds": round(time.monotonic() - record.began, 3)}
        self.lost_outputs[record.task] = said.get("lost_outputs") or []
        self.absent_outputs[record.task] = said.get("absent_outputs") or []

        unsaid_tail = list(ending.tail) or record.tail.splitlines()[-20:]
        fields = {**said, "tail": said.get("tail", unsaid_tail)}
        fields |= {"outcome": ending.outcome, "reason": ending.reason, "output": record.output}
        self._stream.write(
            AttemptEnded(task=record.task, attempt=record.attempt, node=record.node, **fields)
        )

    def checkpoint_parts(self, task: str) -> Iterator[bytes]:
        """Yield the parts of a task's newest checkpoint, if it has one."""
        path = self._directory / names.checkpoint_archive(task)
        if not path.exists():
            return iter(())
        return _read(path)

    def adopt(self, run: str, former: str, task: str) -> None:
        """Let `task` begin from the checkpoint of task `former` of run `run`.

        If neither this head nor the storage has that checkpoint, nothing
        changes.
        """
        before = durable.find(self._directory.with_name(run), former, self._storage)
        if before is not None:
            durable.share(before, self._directory / names.checkpoint_archive(task))

    def inherit_checkpoint(self, task: str, parts: Iterator[bytes]) -> None:
        """Store the operator's checkpoint for a task's first attempt."""
        incoming = Incoming(self._directory / names.checkpoint_archive(task))
        for part in parts:
            incoming.write(part)
        incoming.finish()

    def inherit_outputs(self, task: str, parts: Iterator[bytes]) -> None:
        """Store the operator's outputs as archive 1, and write the event."""
        file = names.output_archive(task, 1)
        incoming = Incoming(self._directory / file)
        for part in parts:
            incoming.write(part)
        digest = incoming.finish()
        self._numbers[task] = 1
        kept = OutputsKept(
            task=task,
            attempt=1,
            number=1,
            file=file,
            bytes=incoming.bytes,
            sha256=digest,
            whole=True,
            removed=[],
            each_attempt=False,
        )
        self._archives[task, 0] = [kept]
        self._stream.write(kept)

    def outputs(self, task: str) -> list[tuple[OutputsKept, Iterator[bytes]]]:
        """Return the archives that a task's next attempt unpacks, in order.

        Each archive comes with its parts. With `each_attempt`, there are no
        archives.
        """
        if self._each_attempt:
            return []
        archives = self._archives.get((task, 0), [])
        return [(archive, _read(self._directory / archive.file)) for archive in archives]

    def _ready(self, record: AttemptRecord, _: Any) -> None:
        record.is_ready = True

    def _noted(self, record: AttemptRecord, text: str) -> None:
        self._stream.write(Note(f"{record.task}: {text}"))

    def _started(self, record: AttemptRecord, place: dict[str, Any]) -> None:
        record.is_started = True
        record.began = time.monotonic()
        node_id = record.node_id = place["node_id"]
        record.node = self.node_name(node_id) if node_id else None
        self._stream.write(
            AttemptStarted(record.task, record.attempt, record.node, node_id, place["gpus"])
        )

    def _output(self, record: AttemptRecord, chunk: bytes) -> None:
        text = chunk.decode("utf-8", "surrogateescape")
        self._job_log.printed(record.task, text)
        self._stream.write(TaskOutput(record.task, record.attempt, record.printed, text))
        record.printed += len(chunk)
        record.tail = (record.tail + chunk.decode("utf-8", "replace"))[-4096:]

    def _metric(self, record: AttemptRecord, values: list[list[float]]) -> None:
        """Write metric values [step, finite value, seconds since 1970]."""
        for begin in range(0, len(values), _VALUES_AT_ONCE):
            some = values[begin : begin + _VALUES_AT_ONCE]
            self._stream.write(Metric(record.task, record.attempt, some))
            if self.on_metric is not None:
                self.on_metric(record, some)

    def _ended(self, record: AttemptRecord, said: dict[str, Any]) -> None:
        record.ended = said

    def _checkpoint_arrived(self, record: AttemptRecord, said: dict[str, Any]) -> None:
        archive = self._opened(record, self._checkpoint(record))
        digest = archive.finish(carry=said["carry"])
        del record.incoming[self._checkpoint(record)]
        kept = CheckpointKept(
            record.task,
            record.attempt,
            bytes=said["bytes"],
            files=said["files"],
            archive_bytes=archive.bytes,
            sha256=digest,
        )
        self._stream.write(kept)

    def _checkpoint_part(self, record: AttemptRecord, part: bytes) -> None:
        self._opened(record, self._checkpoint(record)).write(part)

    def _checkpoint_dropped(self, record: AttemptRecord, _: Any) -> None:
        self._drop(record, self._checkpoint(record))

    def _outputs_part(self, record: AttemptRecord, part: bytes) -> None:
        self._opened(record, self._next_archive(record)).write(part)

    def _outputs_arrived(self, record: AttemptRecord, said: dict[str, Any]) -> None:
        file = self._next_archive(record)
        incoming = self._opened(record, file)
        digest = incoming.finish()
        del record.incoming[file]
        self._numbers[record.task] += 1

        record.output = {"file": file, "bytes": incoming.bytes, "sha256": digest}
        kept = OutputsKept(
            task=record.task,
            attempt=record.attempt,
            number=self._numbers[record.task],
            each_attempt=self._each_attempt,
            **record.output,
            **said,
        )
        self._stream.write(kept)

        series = (record.task, record.attempt if self._each_attempt else 0)
        known = self._archives.setdefault(series, [])
        if kept.whole:
            for archive in known:
                (self._directory / archive.file).unlink(missing_ok=True)
            known.clear()
        known.append(kept)

    def _drop_all(self, record: AttemptRecord) -> None:
        for path in list(record.incoming):
            self._drop(record, path)

    def _drop(self, record: AttemptRecord, path: str) -> None:
        if path in record.incoming:
            record.incoming.pop(path).abandon()

    def _opened(self, record: AttemptRecord, path: str) -> Incoming:
        if path not in record.incoming:
            record.incoming[path] = Incoming(self._directory / path)
        return record.incoming[path]

    def _checkpoint(self, record: AttemptRecord) -> str:
        return names.checkpoint_archive(record.task)

    def _next_archive(self, record: AttemptRecord) -> str:
        return names.output_archive(record.task, self._numbers[record.task] + 1)


def _read(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield from iter(lambda: file.read(4 * PART), b"")
