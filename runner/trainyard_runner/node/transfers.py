"""Sends checkpoints and outputs in parts, with the log in between."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from trainyard_runner.node.checkpoint import CheckpointWatch
from trainyard_runner.node.outputs import Message, OutputWatch

Watch = CheckpointWatch | OutputWatch


class Transfers:
    """Takes archives from watches; each watch has at most one in flight."""

    def __init__(self, *watches: Watch, clock: Callable[[], float] = time.monotonic) -> None:
        self._watches = watches
        self._clock = clock
        self._in_flight: dict[Watch, Iterator[Message]] = {}

    def due(self) -> float:
        """Return when to call `step` next, in the clock's time; 0 for now."""
        if self._in_flight:
            return 0.0
        return min(watch.due for watch in self._watches)

    def step(self, *, begin: bool) -> list[Message]:
        """Return each transfer's next message; with `begin`, start due ones."""
        for watch in self._watches:
            if begin and watch not in self._in_flight and self._clock() >= watch.due:
                self._in_flight[watch] = watch.look()

        messages = []
        for watch, transfer in list(self._in_flight.items()):
            message = next(transfer, None)
            if message is None:
                del self._in_flight[watch]
            else:
                messages.append(message)
        return messages

    def last(self) -> Iterator[list[Message]]:
        """For each watch, yield a transfer's rest, then the last changes."""
        for watch in self._watches:
            for message in self._in_flight.pop(watch, iter(())):
                yield [message]
            for message in watch.last():
                yield [message]
