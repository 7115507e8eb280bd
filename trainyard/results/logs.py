"""The logs of a run's attempts: appended at known offsets, so that reading a stream twice changes nothing."""

from __future__ import annotations

import os
from collections import OrderedDict
from dataclasses import dataclass

from trainyard.errors import OutsideError
from trainyard.results.store import RunDirectory

# A run may have 10,000 tasks at once; the usual limit of open files is 1,024.
_OPEN_AT_ONCE = 128


@dataclass
class _Log:
    size: int
    descriptor: int | None


class Logs:
    """Appends output to the logs of one run; unbuffered, so that what was written outlives a killed process.

    With recording off nothing is written and only the offsets are kept: for whoever looks on while another records.
    """

    def __init__(self, run: RunDirectory, *, recording: bool) -> None:
        self._run = run
        self._recording = recording
        self._logs: OrderedDict[tuple[str, int], _Log] = OrderedDict()

    def append(self, task: str, attempt: int, *, at: int, output: bytes) -> bytes:
        """Write what is new of some output that begins at an offset; return what was new.

        Raises OutsideError when bytes between are missing.
        """
        log = self._log(task, attempt)
        if at > log.size:
            raise OutsideError(
                f"output of task {task} is missing: {at - log.size} bytes before offset {at}",
                where=str(self._run.log(task, attempt)),
                hint="Another program changed this file, or the cluster lost a part of the stream.",
            )
        new = output[log.size - at :]
        if log.descriptor is not None:
            _write_all(log.descriptor, new)
        log.size += len(new)
        return new

    def close(self) -> None:
        """Close every file."""
        for log in self._logs.values():
            if log.descriptor is not None:
                os.close(log.descriptor)
        self._logs.clear()

    def _log(self, task: str, attempt: int) -> _Log:
        key = (task, attempt)
        found = self._logs.get(key)
        if found is not None:
            self._logs.move_to_end(key)
            return found
        opened = self._logs[key] = self._open(task, attempt)
        if self._recording and len(self._logs) > _OPEN_AT_ONCE:
            _, oldest = self._logs.popitem(last=False)
            if oldest.descriptor is not None:
                os.close(oldest.descriptor)
        return opened

    def _open(self, task: str, attempt: int) -> _Log:
        path = self._run.log(task, attempt)
        if not self._recording:
            return _Log(path.stat().st_size if path.exists() else 0, None)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        return _Log(os.fstat(descriptor).st_size, descriptor)


def _write_all(descriptor: int, output: bytes) -> None:
    while output:
        output = output[os.write(descriptor, output) :]
