"""Ctrl-C and SIGTERM as a question that can be asked, so that no line is torn apart in its middle."""

from __future__ import annotations

import signal
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """Turns the first signal into `asked`; another one raises KeyboardInterrupt.

    Until `hold` is called, the first one raises it too: nothing has been started then that could be left behind.
    """

    def __init__(self, *, held: bool = False) -> None:
        self._held = held
        self._count = 0
        self._before: dict[int, object] = {}

    def asked(self) -> bool:
        return self._count > 0

    def hold(self) -> None:
        self._held = True

    def __enter__(self) -> Interrupts:
        self._before = {number: signal.signal(number, self._came) for number in _SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)  # type: ignore[arg-type]

    def _came(self, number: int, frame: FrameType | None) -> None:
        self._count += 1
        if self._count > 1 or not self._held:
            raise KeyboardInterrupt
