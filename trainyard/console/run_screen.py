"""Show a run to users: tasks' lines, a progress bar, and notes."""

from __future__ import annotations

import re
import shutil
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Protocol

from trainyard_runner.wire.events import (
    AttemptEnded,
    AttemptStarted,
    DriversWaiting,
    Event,
    GateEnded,
    Note,
    RunEnded,
    TaskEnded,
    TrialEnded,
    Waiting,
)
from trainyard_runner.wire.outcome import in_words

from trainyard.console.command_hints import complete
from trainyard.dispatch.follow import Screen
from trainyard.results import formats
from trainyard.results.report import write_report
from trainyard.results.state import ENDED, RunState
from trainyard.results.store import RunDirectory
from trainyard.results.sweep import Sweep
from trainyard.wording import ESCAPES, visible

_COLOURS = (36, 33, 35, 32, 34, 96, 93, 95)
WRITE_EVERY = 10.0  # seconds; the open page reloads at this interval (page/live.js)
_DRAW_EVERY = 0.1
_BAR_WIDTH = 20
_ERASE = "\r\x1b[2K"
# Bytes. A longer line without an end is shown in pieces.
_LONGEST_LINE = 64 * 1024

# Colours (SGR), which are kept on a terminal.
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# Removed from output: control characters, and marks that reverse the direction of text.
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)
# Text that a carriage return overwrites. The pattern is anchored at the line's beginning, because a
# search in a long line would take minutes.
_REDRAWN = re.compile(r"(?m)^[^\n]*\r(?=[^\n\r])")


class Stream(Protocol):
    """The part of a text stream that screens use."""

    def isatty(self) -> bool: ...

    def write(self, text: str, /) -> int: ...

    def flush(self) -> None: ...


class PrintedScreen(Screen):
    """Prints tasks' lines and notes; a terminal gets a bar and colours, too.

    `only` is the one task whose output is shown. Set `bar` to False if other
    code prints to the same terminal.
    """

    def __init__(self, stream: Stream, *, only: str | None = None, bar: bool = True) -> None:
        super().__init__()
        self._stream = stream
        self._colour = stream.isatty()
        self._bar = Bar(stream) if bar and self._colour else None
        self._only = only
        # By task: its last, incomplete line, held back so that lines of different tasks do not mix.
        self._unfinished: dict[str, bytes] = {}

    def output(self, task: str, text: bytes) -> None:
        """Print a task's complete lines; keep the rest for the next call."""
        if self._only not in (None, task):
            return
        text = self._unfinished.pop(task, b"") + text
        end = text.rfind(b"\n") + 1
        if len(text) - end > _LONGEST_LINE:
            text += b"\n"
            end = len(text)
        elif end < len(text):
            self._unfinished[task] = text[end:]
        self._lines(task, text[:end])

    def event(self, event: Event, state: RunState) -> None:
        """Print a line for some kinds of events, and draw the bar again."""
        if isinstance(event, (AttemptEnded, TaskEnded)):
            rest = self._unfinished.pop(event.task, b"")
            self._lines(event.task, rest + b"\n" if rest else b"")
        for line in _lines_about(event, state):
            self._print(visible(complete(line)) + "\n")
        if isinstance(event, RunEnded):
            self.close()
        else:
            self.tick(state)

    def tick(self, state: RunState) -> None:
        if self._bar and not state.ended:
            self._bar.draw(state)

    def note(self, text: str) -> None:
        line = f"-- {visible(complete(text))}"
        if self._colour:
            line = f"\x1b[2m{line}\x1b[0m"
        self._print(f"{line}\n")

    def erase(self) -> None:
        if self._bar:
            self._bar.erase()

    def close(self) -> None:
        self.erase()

    def _lines(self, task: str, text: bytes) -> None:
        self._print(prefixed(task, plain(text, colours=self._colour), colour=self._colour))

    def _print(self, text: str) -> None:
        if text:
            self.close()
            self._stream.write(text)
            self._stream.flush()


class ReportScreen(Screen):
    """Rewrites the HTML report while a run is followed; prints only notes."""

    def __init__(
        self,
        run: RunDirectory,
        *,
        note: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
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
        self._due = self._clock() + WRITE_EVERY


class Bar:
    """The progress bar of a run, one line at the bottom of a terminal.

    rich's Live is not used: it takes a millisecond for each printed text, and
    tasks print megabytes.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._began = time.monotonic()
        self._drawn = 0.0
        self._shown = False

    def draw(self, state: RunState) -> None:
        """Draw an erased bar at once, else at most ten times a second."""
        now = time.monotonic()
        if not state.tasks or (self._shown and now < self._drawn + _DRAW_EVERY):
            return
        noun, ended, total, news = _progress(state)
        filled = _BAR_WIDTH * min(ended, total) // total
        bar = f"{'━' * filled}{'─' * (_BAR_WIDTH - filled)} {ended}/{total}"
        line = ", ".join([f"{noun} {bar}", f"{now - self._began:.0f} s", *news])
        self._stream.write(f"{_ERASE}{line[: shutil.get_terminal_size().columns - 1]}\r")
        self._stream.flush()
        self._drawn = now
        self._shown = True

    def erase(self) -> None:
        if self._shown:
            self._stream.write(_ERASE)
            self._stream.flush()
            self._shown = False


def _progress(state: RunState) -> tuple[str, int, int, list[str]]:
    """Return the noun, how many ended, the total, and further counts."""
    news = []
    sweep = state.sweep
    if sweep is None:
        for name in ("running", "failed", "stopped"):
            if state.counts[name]:
                news.append(f"{state.counts[name]} {name}")
        return "tasks", _ended(state), len(state.tasks), news

    best = sweep.best
    if best and best.value is not None:
        news.append(f"best {formats.number(best.value)} (trial {best.number})")

    counts = sweep.counts()
    ended = sum(counts.values()) - counts["running"]
    for name in ("running", "pruned", "failed"):
        if counts[name]:
            news.append(f"{counts[name]} {name}")

    return "trials", ended, sweep.tune.get("samples") or len(sweep.trials), news


def prefixed(task: str, text: str, *, colour: bool = False) -> str:
    """Put `[task]` before each line; `text` must end with a newline."""
    if not text:
        return ""
    task = visible(task)
    prefix = f"[{task}] "
    if colour:
        prefix = f"\x1b[{_COLOURS[zlib.crc32(task.encode()) % len(_COLOURS)]}m[{task}]\x1b[0m "
    return prefix + text[:-1].replace("\n", "\n" + prefix) + "\n"


def plain(text: bytes, *, colours: bool = False) -> str:
    """Return a task's output as text, without control characters.

    Only the last state of a line that was redrawn (by `\\r`) is kept. With
    `colours`, colours stay.
    """
    shown = text.decode("utf-8", "replace")
    if "\r" in shown:
        shown = _REDRAWN.sub("", shown.replace("\r\n", "\n"))

    def kept(escape: re.Match[str]) -> str:
        return escape[0] if colours and _COLOUR.fullmatch(escape[0]) else ""

    shown = ESCAPES.sub(kept, shown)
    if "\x1b" in shown:
        # Colours are reset at the end of each line, before the next task's name.
        shown = shown.replace("\n", "\x1b[0m\n")
    return _CONTROLS.sub("", shown)


def _lines_about(event: Event, state: RunState) -> Iterator[str]:
    match event:
        case GateEnded():
            yield from _gate(event, state)
        case AttemptStarted() if event.attempt > 1:
            yield f"[{event.task}] attempt {event.attempt}{_on(event.node)}"
        case AttemptEnded():
            yield from _attempt_ended(event, state)
        case TaskEnded() if not state.sweep:
            yield f"[{event.task}] {event.state} ({_ended(state)}/{len(state.tasks)})"
        case TrialEnded() if state.sweep:
            yield from _trial_ended(event, state.sweep)
        case Note():
            if event.text:
                yield f"-- {event.text}"
        case Waiting() | DriversWaiting():
            # A repeated event (`again`) has the same reason with other numbers. Each reason is
            # printed only once.
            if event.text and not event.again:
                yield f"-- {event.text}"


def _gate(event: GateEnded, state: RunState) -> Iterator[str]:
    done = [check for check in state.checks if not check.skipped]
    if event.ok:
        yield f"smoke: {len(done)} checks ok, {event.seconds:.1f} s"
        return
    failed = [check for check in done if not check.ok]
    yield f"smoke: {len(failed)} of {len(done)} checks failed, {event.seconds:.1f} s"
    for check in failed:
        yield f"  FAILED  {check.name}{_on(check.node)}: {check.detail}"
        if check.hint:
            yield f"          -> {check.hint}"


def _attempt_ended(event: AttemptEnded, state: RunState) -> Iterator[str]:
    # A stopped task of a sweep gets no line: the line of its trial has the reason.
    if event.outcome == "succeeded" or (state.sweep and event.outcome == "stopped"):
        return
    reason = f": {event.reason}" if event.reason else ""
    outcome = in_words(event.outcome)
    yield f"[{event.task}] attempt {event.attempt} {outcome}{_on(event.node)}{reason}"


def _on(node: str | None) -> str:
    """An attempt may end before it gets a node."""
    return f" on {node}" if node else ""


def _trial_ended(event: TrialEnded, sweep: Sweep) -> Iterator[str]:
    trial = sweep.trials[event.trial]
    if not trial.tasks:
        return  # a trial of the former sweep, which this sweep continues
    value = ""
    if trial.value is not None:
        value = f" {formats.number(trial.value)}"
    best = " (best so far)" if trial is sweep.best else ""
    params = ", ".join(f"{name}={formats.scalar(value)}" for name, value in trial.params.items())
    reason = f": {trial.reason}" if trial.reason else ""
    yield f"trial {trial.number} {trial.state}{value}{best}, {params}{reason}"


def _ended(state: RunState) -> int:
    return sum(state.counts[word] for word in ENDED)
