"""One attempt of a task: runs the command, and sends its output and files.

Runs inside a Ray worker as a generator, which yields lists of messages (kind,
content). `head/in_flight.py:_hear` receives the messages, and `head/records.py`
keeps them. If the head is slow, Ray pauses the generator. The command then
blocks on its full output pipe.
"""

from __future__ import annotations

import functools
import os
import select
import signal
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainyard_runner.node import job_files, outputs
from trainyard_runner.node.checkpoint import CheckpointWatch
from trainyard_runner.node.child import Child
from trainyard_runner.node.job_files import Identity, JobFiles
from trainyard_runner.node.output import OutputBuffer
from trainyard_runner.node.outputs import Message, OutputWatch
from trainyard_runner.node.transfers import Transfers
from trainyard_runner.node.watchdog import MetricWatch
from trainyard_runner.node.workspace import Spare, Workspace, attempt_id, environment
from trainyard_runner.ray_package import OwnPackage
from trainyard_runner.stopping import GRACE, StopWatch
from trainyard_runner.wire import archive
from trainyard_runner.wire.archive import Entries, LeftOut
from trainyard_runner.wire.order import Order
from trainyard_runner.wire.outcome import QUICK

Batch = list[Message]
NOTHING_RAN: dict[str, Any] = {"exit_code": None, "seconds": 0.0}
_READ = 256 * 1024


class Attempt:
    """The state of one attempt while its command runs."""

    def __init__(
        self,
        order: Order,
        *,
        home: Path,
        files: JobFiles | None,
        gpus: list[str],
        node: str,
        package: OwnPackage | None,
        spare: Spare,
    ) -> None:
        """Make the attempt's directories, or reuse those in `spare`.

        `home`: Trainyard's directory on this node. `gpus`: the ids of the
        task's GPUs. `node`: this node's id. `package`: the package of the
        command's own Ray tasks, if the attempt has one.
        """
        self._order = order
        self._package = package
        self._gpus = gpus
        self._files = files
        self._copied: dict[str, Identity] = {}
        self._place = Workspace(home, order, spare)
        self._pending: Batch = [("started", {"node_id": node, "gpus": gpus})]
        self._buffer = OutputBuffer()
        self._child: Child | None = None
        self._metric: MetricWatch | None = None
        self._final: dict[str, Any] = {}
        self._verdict: tuple[str, str] | None = None
        # The result of `_kernel_memory_kills` at the first `_look`.
        self._memory_kills: int | None = None

    def run(self, fetch: Callable[[list[Any]], Iterator[bytes]]) -> Generator[Batch, None, None]:
        """Run the attempt, and yield its messages; the last one is `ended`.

        Afterwards, its directories are removed or passed on to the next
        attempt. `fetch` reads the order's references from Ray's object store.
        """
        stop = StopWatch(attempt_id(self._order), self._order["run"])
        try:
            try:
                self._prepare(fetch)
            except OSError as error:
                yield [*self._flush(), ("ended", _not_prepared(error))]
                return

            if self._order["together"]:
                yield [("ready", None)]
                asked = stop.wait_for_others(self._order["attempt"])
                if asked is not None:
                    ended = {**NOTHING_RAN, "outcome": "stopped", "reason": asked.reason}
                    yield [*self._flush(), ("ended", ended)]
                    return

            kept = self._output_watch()
            transfers = Transfers(self._checkpoint_watch(), kept)
            yield from self._run_command(transfers, stop)

            for parts in transfers.last():
                yield [*self._flush(), *parts]

            if self._metric is not None:
                # The flush gives the last output to the metric's reader. Without a metric, all
                # messages of a quick attempt are one batch.
                yield self._flush()
                for message in self._metric.last():
                    yield [message]

            yield [*self._flush(), *self._ending(kept)]
        finally:
            stop.close()
            if self._child is not None:
                if not self._final and self._child.refused is None:
                    # ray.cancel or a bug has interrupted this generator before the command's end.
                    self._child.stop(0.5)
                    self._child.ended()
                self._child.close()
            if self._metric is not None:
                self._metric.close()
            self._leave_place()

    def _output_watch(self) -> OutputWatch:
        return OutputWatch(
            self._outputs,
            self._files_mapped_for_writing,
            every=self._order["every"],
            limit=self._order["limit"],
            held=self._order["held"],
        )

    def _checkpoint_watch(self) -> CheckpointWatch:
        limit = self._order["limit"]
        return CheckpointWatch(self._place.checkpoint, self._files_open_for_writing, limit=limit)

    def _leave_place(self) -> None:
        if self._final.get("exit") == 0 and not self._final["left"]:
            self._place.hand_on()
        else:
            # The directories are not reused: a process that was not ended may still write here.
            self._place.remove()

    def _prepare(self, fetch: Callable[[list[Any]], Iterator[bytes]]) -> None:
        not_restored = self._place.restore(self._order, fetch)
        if not_restored:
            self._pending.append(("note", f"not restored: {outputs.in_words(not_restored)}"))
        self._copied = self._place.copy_files(self._files, self._order["outputs"])

    def _run_command(self, transfers: Transfers, stop: StopWatch) -> Iterator[Batch]:
        child = self._start_command()
        self._child = child
        if child.refused is not None:
            self._note_refusal(child, child.refused)
            return

        poll = select.poll()
        for descriptor in (child.output, child.guard.socket.fileno()):
            poll.register(descriptor, select.POLLIN)

        while not self._final:
            self._wait(child, poll, self._wait_ms(transfers))
            if self._final:
                break
            if time.monotonic() - self._began < QUICK and not self._buffer.full():
                continue

            self._look(child, stop)
            if self._buffer.due() or self._pending:
                self._pending += self._buffer.take()
                yield self._flush()

            if parts := transfers.step(begin=self._verdict is None):
                yield parts

        yield from self._rest_of_output(child)

    def _note_refusal(self, child: Child, refused: str) -> None:
        self._final = {"exit": None}
        self._verdict = ("failed", refused)
        if child.searched:
            line = f"trainyard: {refused} in PATH: {os.pathsep.join(child.searched)}\n"
            self._pending.append(("output", line.encode()))

    def _wait(self, child: Child, poll: select.poll, milliseconds: float | None) -> None:
        """Read output and the guard's last message, if they come in time."""
        ready = dict(poll.poll(milliseconds))
        if child.output in ready and not self._buffer.read(child.output, _READ):
            poll.unregister(child.output)
        if child.guard.socket.fileno() in ready:
            self._final = child.ended()

    def _look(self, child: Child, stop: StopWatch) -> None:
        """Pin the package, read the metric, and end the command if due.

        Quick commands need none of this.
        """
        if self._memory_kills is None:
            self._memory_kills = _kernel_memory_kills()
        # A quick command cannot have connected to Ray: importing Ray takes longer.
        if self._package is not None:
            self._package.keep()
        if self._metric is not None:
            self._pending += self._metric.look()
        self._end_if_asked(child, stop)

    def _rest_of_output(self, child: Child) -> Iterator[Batch]:
        # Only the pipe's present content is read: a process that escaped may keep the pipe open.
        while self._buffer.read(child.output, _READ):
            if self._buffer.full():
                self._pending += self._buffer.take()
                yield self._flush()
        self._pending += self._buffer.take(everything=True)

    def _start_command(self) -> Child:
        variables = environment(self._order, self._place, inherited=_inherited(), gpus=self._gpus)
        if self._order["watch"]:
            roots = [self._place.directory, self._place.output]
            self._metric = MetricWatch(self._order["watch"], roots=roots, environment=variables)
        self._began = time.monotonic()
        return Child(
            self._order["command"],
            directory=self._place.directory,
            environment=variables,
            scratch=self._place.root,
            mark=f"TRAINYARD_ATTEMPT_ID={attempt_id(self._order)}",
        )

    def _end_if_asked(self, child: Child, stop: StopWatch) -> None:
        stop.start()
        timeout = self._order["timeout"]
        if self._verdict is not None:
            return

        asked = stop.asked
        if asked is not None:
            self._verdict = ("stopped", asked.reason)
            child.stop(asked.grace)
        elif timeout is not None and time.monotonic() - self._began >= timeout:
            self._verdict = ("timeout", f"it ran longer than its timeout of {timeout:g} s")
            child.stop(GRACE)
        elif self._metric is not None and self._metric.broken is not None:
            reason = self._metric.broken.reason
            final = child.dump_and_stop(GRACE)
            if final is not None:
                self._final = final
                return
            self._verdict = ("failed", reason)
            # This line explains Python's dump of its threads, which looks like a fatal error.
            self._buffer.add(f"trainyard: ended: {reason}; the threads of its Python processes:")

    def _wait_ms(self, transfers: Transfers) -> int:
        """Return the milliseconds until `_run_command` must look again."""
        now = time.monotonic()
        until = [now + 0.2, max(transfers.due(), self._began + QUICK)]
        if self._pending or self._buffer:
            until.append(now + QUICK)
        if self._order["timeout"] is not None and self._verdict is None:
            until.append(self._began + self._order["timeout"])
        return max(0, int((min(until) - now) * 1000) + 1)

    def _files_open_for_writing(self) -> set[str]:
        if self._child is None:
            return set()
        return self._child.files_written(self._place.checkpoint)

    def _files_mapped_for_writing(self) -> set[str]:
        # Ended processes map no files, so that a quick attempt need not read /proc.
        if self._child is None or self._final:
            return set()
        return self._child.files_written(self._place.root, mapped_only=True)

    def _outputs(self) -> tuple[Entries, list[LeftOut]]:
        in_output, left_out = archive.scan(str(self._place.output))
        entries = dict(in_output)
        for declared in self._order["outputs"]:
            found, outside = self._declared(declared)
            left_out += [*archive.hidden(in_output, by=found), *outside]
            entries.update(found)
        for number, item in enumerate(left_out):
            if self._leads_to_doomed(item, entries):
                left_out[number] = replace(item, is_lost=True)
        return archive.without_loose_links(entries, left_out), left_out

    def _leads_to_doomed(self, item: LeftOut, entries: Entries) -> bool:
        """Return whether the attempt's cleanup will remove a link's target.

        False if the target itself is sent as an output.
        """
        if not item.target:
            return False
        target = Path(item.target).resolve()
        if not target.is_relative_to(self._place.root.resolve()) or not target.exists():
            return False
        places = (self._place.output.resolve(), self._place.directory.resolve())
        names = [str(target.relative_to(place)) for place in places if target.is_relative_to(place)]
        return not any(name in entries for name in names)

    def _declared(self, declared: str) -> tuple[Entries, list[LeftOut]]:
        name = declared.strip("/")
        path = self._place.directory / name
        if path.parent.resolve() != self._place.directory.resolve() / Path(name).parent:
            return {}, [LeftOut(name, "a link that leads outside", is_lost=True)]
        return archive.scan_one(str(path), name)

    def _ending(self, kept: OutputWatch) -> Batch:
        """Return notes on outputs and the metric, then the message `ended`."""
        left_out = kept.left_out
        lost = [str(item) for item in left_out if item.is_lost]
        declared = self._order["outputs"]
        directory = self._place.directory
        missing = [name for name in declared if not os.path.lexists(directory / name)]
        changed = job_files.changed(directory, self._copied, declared=declared)
        ended = {
            **self._verdict_in_full(),
            "lost_outputs": lost[: outputs.NAMED],
            "absent_outputs": missing,
            "brought": kept.held(),
            "not_brought": outputs.counted([str(item) for item in left_out]),
            "undeclared": outputs.counted(changed, by_directory=True),
        }

        messages: Batch = []
        if left_out:
            messages.append(("note", f"not brought back: {outputs.in_words(left_out)}"))
        if self._metric is not None and ended["outcome"] == "succeeded":
            no_value = self._metric.missing()
            if no_value:
                messages.append(("note", no_value))
        return [*messages, ("ended", ended)]

    def _verdict_in_full(self) -> dict[str, Any]:
        status: int | None = self._final.get("exit")
        memory_kills = 0
        if self._memory_kills is not None:
            memory_kills = _kernel_memory_kills() - self._memory_kills

        outcome, reason = self._verdict or _verdict(status, memory_kills=memory_kills)
        broken = self._metric.broken if self._metric else None
        # NaN also fails a command with exit code 0. The rules on silent or constant metrics apply
        # only to a running command.
        if broken is not None and broken.rule == "nan" and outcome == "succeeded":
            outcome = "failed"
            reason = f"{broken.reason}; it ended by itself, with exit code 0"

        cause = {}
        if broken is not None and (reason or "").startswith(broken.reason):
            cause = {"watch": broken.rule}
        if self._final.get("left"):
            reason = f"{reason or 'ended'}; some of its processes could not be ended"
        if status is not None and status < 0:
            # As in a shell: 128 plus the signal's number.
            status = 128 - status

        return {
            "exit_code": status,
            "outcome": outcome,
            "reason": reason,
            "seconds": round(time.monotonic() - self._began, 3),
            "tail": self._buffer.tail(),
            "cpu_seconds": self._final.get("cpu_seconds"),
            "max_rss": self._final.get("max_rss"),
            **cause,
        }

    def _flush(self) -> Batch:
        batch = self._pending
        self._pending = []
        if self._metric is not None:
            self._metric.feed([content for kind, content in batch if kind == "output"])
        return batch


def _not_prepared(error: OSError) -> dict[str, Any]:
    where = f" ({error.filename})" if error.filename else ""
    reason = f"the job's files could not be put on the node: {error.strerror or error}{where}"
    return {**NOTHING_RAN, "outcome": "failed", "reason": reason}


@functools.cache
def _inherited() -> dict[str, str]:
    """Return a copy of this worker's environment, cached for quick attempts."""
    return dict(os.environ)


def _verdict(status: int | None, *, memory_kills: int) -> tuple[str, str | None]:
    """Return outcome and reason of a command that was not stopped."""
    if status == 0:
        return "succeeded", None
    if status is None:
        return (
            "failed",
            "the guard process that started the task was killed, by the task or by another program",
        )
    if status > 0:
        return "failed", f"exit code {status}"

    number = -status
    if number == signal.SIGKILL and memory_kills > 0:
        return "failed", "killed (SIGKILL): the node ran out of memory, its kernel ended a process"
    if number in set(signal.Signals):
        return "failed", f"killed by {signal.Signals(number).name}"
    return "failed", f"killed by signal {number}"


def _kernel_memory_kills() -> int:
    """Return how many processes the kernel killed for lack of memory.

    The count is 0 before Linux 4.13, and on other systems.
    """
    try:
        with Path("/proc/vmstat").open("rb") as file:
            for line in file:
                if line.startswith(b"oom_kill "):
                    return int(line.split()[1])
    except OSError:
        pass
    return 0
