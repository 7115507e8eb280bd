"""What a person sees of a run: every task's lines under its name, a bar of tasks, and what is worth a note."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from trainyard.printable import visible
from trainyard.results.event import Event
from trainyard.results.state import RunState
from trainyard.screen_text import LineKeeper, plain, said

# What names commands as they are typed here: `invoke ...` or `trainyard ...`.
Reword = Callable[[str], str]

_COLOURS = (36, 33, 35, 32, 34, 96, 93, 95)
_DRAW_EVERY = 0.1


class PlainScreen:
    """Plain lines for a pipe or CI: the same facts, no control characters."""

    def __init__(self, stream: TextIO, *, only: str | None = None, reword: Reword = str) -> None:
        self._stream = stream
        self._reword = reword
        self._only = only
        self._keeper = LineKeeper()

    def output(self, task: str, text: bytes) -> None:
        """Print a task's whole lines, each under its name."""
        if self._only is None or task == self._only:
            self._print(prefixed(task, plain(self._keeper.whole_lines(task, text))))

    def event(self, event: Event, state: RunState) -> None:
        """Print what happened, if it is worth a line."""
        if event["event"] in ("attempt-ended", "task-ended"):
            self._print(prefixed(event["task"], plain(self._keeper.rest(event["task"]))))
        for line in said(event, state):
            self._print(visible(self._reword(line)) + "\n")

    def tick(self, state: RunState) -> None:
        """Nothing moves in a pipe."""

    def note(self, text: str) -> None:
        """Print a note."""
        self._print(f"-- {visible(self._reword(text))}\n")

    def close(self) -> None:
        """Nothing to take down."""

    def _print(self, text: str) -> None:
        if text:
            self._stream.write(text)
            self._stream.flush()


class TerminalScreen:
    """A terminal: coloured names, and one line at the bottom that counts tasks.

    The bar is drawn and erased here instead of by rich's Live, which takes a millisecond per printed text: output
    comes by the megabyte.
    """

    def __init__(self, stream: TextIO, *, only: str | None = None, reword: Reword = str) -> None:
        self._stream = stream
        self._reword = reword
        self._only = only
        self._keeper = LineKeeper()
        self._console = Console(file=stream, highlight=False)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("{task.fields[counts]}"),
            TimeElapsedColumn(),
            console=self._console,
        )
        self._task = self._bar.add_task("tasks", total=None, counts="")
        self._drawn = 0.0
        self._shown = False

    def output(self, task: str, text: bytes) -> None:
        """Print a task's whole lines, each under its coloured name."""
        if self._only is None or task == self._only:
            self._print(prefixed(task, plain(self._keeper.whole_lines(task, text), colours=True), colour=True))

    def event(self, event: Event, state: RunState) -> None:
        """Print what happened, if it is worth a line, and draw the bar anew."""
        if event["event"] in ("attempt-ended", "task-ended"):
            rest = plain(self._keeper.rest(event["task"]), colours=True)
            self._print(prefixed(event["task"], rest, colour=True))
        for line in said(event, state):
            self._print(visible(self._reword(line)) + "\n")
        if event["event"] == "run-ended":
            self._erase()
        else:
            self.tick(state)

    def tick(self, state: RunState) -> None:
        """Draw the bar, at most ten times a second."""
        if time.monotonic() < self._drawn + _DRAW_EVERY or not state.tasks:
            return
        self._drawn = time.monotonic()
        counts = state.counts
        text = ", ".join(f"{counts[name]} {name}" for name in ("running", "failed", "stopped") if counts[name])
        done = counts["succeeded"] + counts["failed"] + counts["stopped"]
        self._bar.update(self._task, completed=done, total=len(state.tasks), counts=text)
        with self._console.capture() as drawn:
            self._console.print(self._bar.get_renderable(), end="", no_wrap=True, crop=True)
        self._stream.write("\r\x1b[2K" + drawn.get().rstrip("\n").split("\n")[0] + "\r")
        self._stream.flush()
        self._shown = True

    def note(self, text: str) -> None:
        """Print a note."""
        self._print(f"\x1b[2m-- {visible(self._reword(text))}\x1b[0m\n")

    def close(self) -> None:
        """Take the bar away."""
        self._erase()

    def _print(self, text: str) -> None:
        if text:
            self._erase()
            self._stream.write(text)
            self._stream.flush()
            self._drawn = 0.0

    def _erase(self) -> None:
        if self._shown:
            self._stream.write("\r\x1b[2K")
            self._stream.flush()
            self._shown = False


def for_stream(stream: TextIO, *, only: str | None = None, reword: Reword = str) -> PlainScreen | TerminalScreen:
    """Return the screen that suits a stream; `only` shows the output of one task and no other's."""
    kind = TerminalScreen if stream.isatty() else PlainScreen
    return kind(stream, only=only, reword=reword)


def prefixed(task: str, text: str, *, colour: bool = False) -> str:
    """Return lines with a task's name before each."""
    if not text:
        return ""
    task = visible(task)
    prefix = f"[{task}] "
    if colour:
        prefix = f"\x1b[{_COLOURS[zlib.crc32(task.encode()) % len(_COLOURS)]}m[{task}]\x1b[0m "
    return prefix + text[:-1].replace("\n", "\n" + prefix) + "\n"
