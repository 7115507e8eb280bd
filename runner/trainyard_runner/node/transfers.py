"""What an attempt sends beside what it prints: part by part, so that nothing else has to wait for
it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from trainyard_runner.node.checkpoint import CheckpointWatch
from trainyard_runner.node.outputs import Message, OutputWatch

Watch = CheckpointWatch | OutputWatch


class Transfers:
    """An attempt's watches, each of which sends one thing at a time."""

    def __init__(self, *watches: Watch, clock: Callable[[], float] = time.monotonic) -> None:
        self._watches = watches
        self._clock = clock
        self._going: dict[Watch, Iterator[Message]] = {}

    def due(self) -> float:
        if self._going:
            return 0.0
        return min(watch.due() for watch in self._watches)

    def step(self, *, begin: bool) -> list[Message]:
        """Return the next part of everything that is on its way; `begin` what is due as well."""
        for watch in self._watches:
            if begin and watch not in self._going and self._clock() >= watch.due():
                self._going[watch] = watch.look()
        messages = []
        for watch, going in list(self._going.items()):
            if (message := next(going, None)) is None:
                del self._going[watch]
            else:
                messages.append(message)
        return messages

    def last(self) -> Iterator[list[Message]]:
        """Finish what is on its way, then send what is new at the end."""
        for watch in self._watches:
            for message in self._going.pop(watch, iter(())):
                yield [message]
            for message in watch.last():
                yield [message]
