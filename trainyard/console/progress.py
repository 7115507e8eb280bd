"""Show steps, one line each, on a terminal or in plain text."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TextIO

from rich.console import Console
from rich.markup import escape
from rich.status import Status
from rich.text import Text

from trainyard.steps import Progress, StepResult
from trainyard.wording import visible

COUNTING_EVERY = 10.0
_COUNTS = re.compile(r"\d+ of \d+ (?:MB|layers)")


def for_stream(stream: TextIO | None = None) -> Progress:
    """Return the display for a terminal or a pipe, by default `sys.stderr`."""
    stream = stream or sys.stderr
    if stream.isatty():
        return TerminalProgress(stream)
    return PlainProgress(stream)


def _ending(result: StepResult) -> str:
    if result.is_stage:
        return f"{result.seconds:.1f} s"
    word = "done" if result.changed else "already"
    if result.seconds >= 0.05:
        return f"{word}, {result.seconds:.1f} s"
    return word


class PlainProgress:
    """Prints a line when a step ends, and when a waiting step's detail changes.

    If only counts of layers or bytes change, at most one line in ten seconds is
    printed.
    """

    def __init__(self, stream: TextIO, *, now: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._now = now
        self._detail = ""
        self._printed = 0.0

    def started(self, title: str) -> None:
        self._detail = ""

    def expanding(self, title: str) -> None:
        self._print(f"  ... {title}")

    def saw(self, title: str, detail: str) -> None:
        """Print the detail of a waiting step if it has changed."""
        if not detail or detail == self._detail:
            return
        only_counts = _COUNTS.sub("", detail) == _COUNTS.sub("", self._detail)
        if only_counts and self._now() < self._printed + COUNTING_EVERY:
            return

        self._detail = detail
        self._printed = self._now()
        self._print(f"  ... {title}: {detail}")

    def finished(self, result: StepResult) -> None:
        self._print(f"  ok  {result.title} ({_ending(result)})")

    def failed(self, title: str, seconds: float) -> None:
        self._print(f"  FAILED  {title} ({seconds:.1f} s)")

    def _print(self, line: str) -> None:
        self._stream.write(visible(line) + "\n")
        self._stream.flush()


@dataclass(frozen=True)
class _Running:
    """The spinner's text with the seconds, which rich renders at each turn."""

    markup: str
    began: float

    def __rich__(self) -> Text:
        return Text.from_markup(f"{self.markup} [dim]{time.monotonic() - self.began:.0f} s[/dim]")


class TerminalProgress:
    """Shows a spinner while a step runs, then a line with a tick or a cross."""

    def __init__(self, stream: TextIO) -> None:
        self._console = Console(file=stream, highlight=False)
        self._status: Status | None = None
        self._began = 0.0

    def started(self, title: str) -> None:
        self._began = time.monotonic()
        self._status = self._console.status(_Running(_text(title), self._began))
        self._status.start()

    def expanding(self, title: str) -> None:
        self.started(title)

    def saw(self, title: str, detail: str) -> None:
        if self._status:
            self._status.update(_Running(f"{_text(title)} [dim]{_text(detail)}[/dim]", self._began))

    def finished(self, result: StepResult) -> None:
        self._stop()
        self._console.print(f"[green]✓[/green] {_text(result.title)} [dim]{_ending(result)}[/dim]")

    def failed(self, title: str, seconds: float) -> None:
        self._stop()
        self._console.print(f"[red]✗[/red] {_text(title)} [dim]{seconds:.1f} s[/dim]")

    def _stop(self) -> None:
        if self._status:
            self._status.stop()
        self._status = None


def _text(foreign: str) -> str:
    return escape(visible(foreign))
