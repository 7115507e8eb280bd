"""Receives the former run's checkpoints and outputs from the operator.

The operator's machine sends the files in parts. A part stays in the memory of
Ray's GCS until the head takes it. The sender is at most a few parts ahead.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from trainyard_runner.head.records import Records
from trainyard_runner.wire.resume import LAST, Resume, part_name

# Seconds; a part of 8 MiB takes this long at 28 KB/s.
SILENCE = 300.0
_EVERY = 0.05


class SilentError(Exception):
    """The operator's machine has sent nothing for SILENCE seconds."""


class Receiver:
    """Receives the parts for one run in the order of their numbers.

    `take` gets a part's name, and removes and returns the part, or returns None
    if the part has not arrived. `check` is called while the next part has not
    arrived, and may raise.
    """

    def __init__(
        self,
        run: str,
        *,
        take: Callable[[str], bytes | None],
        check: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Any] = time.sleep,
    ) -> None:
        self._run = run
        self._take = take
        self._check = check
        self._clock = clock
        self._sleep = sleep
        self._number = 0

    def receive(self, resume: Resume, records: Records) -> None:
        """Wait for all parts, and store them. Raises SilentError."""
        for inherited in resume.inherited:
            if inherited.checkpoint:
                records.inherit_checkpoint(inherited.task, self._archive())
            if inherited.outputs:
                records.inherit_outputs(inherited.task, self._archive())

    def _archive(self) -> Iterator[bytes]:
        while True:
            part = self._next()
            yield part[1:]
            if part[:1] == LAST:
                return

    def _next(self) -> bytes:
        give_up = self._clock() + SILENCE
        name = part_name(self._run, self._number)
        part = self._take(name)
        while part is None:
            self._check()
            if self._clock() > give_up:
                raise SilentError(f"nothing came for {SILENCE:.0f} s")
            self._sleep(_EVERY)
            part = self._take(name)

        self._number += 1
        return part
