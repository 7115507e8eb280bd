"""Where a run is shown that is followed: nowhere, or in its report; what people read is in trainyard/screen.py."""

from __future__ import annotations

import time
from collections.abc import Callable

from trainyard.results.journal import Event
from trainyard.results.report import write_report
from trainyard.results.state import RunState
from trainyard.results.store import RunDirectory

EVERY_SECONDS = 10.0  # as often as the page loads itself again (page/live.js)


class Screen:
    """What shows a person what happens in a run; this one shows notes at most."""

    def __init__(self, *, note: Callable[[str], None] = lambda text: None) -> None:
        self._note = note

    def output(self, task: str, text: bytes) -> None:
        """Show what a task printed."""

    def event(self, event: Event, state: RunState) -> None:
        """Show what happened; `state` has taken it in."""

    def tick(self, state: RunState) -> None:
        """Show that time passed."""

    def note(self, text: str) -> None:
        """Show something worth a line that is not part of the run."""
        self._note(text)


class ReportScreen(Screen):
    """What follows a run shows it here: nothing is printed but notes, and the page is written when there is news."""

    def __init__(
        self, run: RunDirectory, *, note: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(note=note)
        self._run = run
        self._clock = clock
        self._is_old = False
        self._write()

    def output(self, task: str, text: bytes) -> None:
        self._is_old = True

    def event(self, event: Event, state: RunState) -> None:
        self._is_old = True

    def tick(self, state: RunState) -> None:
        if self._is_old and self._clock() >= self._due:
            self._write()

    def close(self) -> None:
        write_report(self._run.path)

    def _write(self) -> None:
        self._is_old = False
        write_report(self._run.path, watched=True)
        self._due = self._clock() + EVERY_SECONDS
