"""Text from tasks and events, made fit to be shown beside others'."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainyard_runner.outcomes import in_words

from trainyard.printable import ESCAPES
from trainyard.results.event import Event
from trainyard.results.state import RunState

# A task may print without ever ending a line; it is shown in pieces of this size then.
_LONGEST_LINE = 64 * 1024

# Colours (SGR) may stay on a terminal.
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_CONTROLS_BUT_ESCAPE = re.compile("[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f]")
_REDRAWN = re.compile(r"[^\n]*\r(?=[^\n\r])")


class LineKeeper:
    """Keeps the unfinished line of every task back, so that lines of different tasks do not mix."""

    def __init__(self) -> None:
        self._unfinished: dict[str, bytes] = {}

    def whole_lines(self, task: str, text: bytes) -> bytes:
        """Return the whole lines that a task has printed by now."""
        kept = self._unfinished.pop(task, b"")
        text = kept + text if kept else text
        end = text.rfind(b"\n") + 1
        if end < len(text):
            if len(text) - end > _LONGEST_LINE:
                return text + b"\n"
            self._unfinished[task] = text[end:]
        return text[:end]

    def rest(self, task: str) -> bytes:
        """Return what a task has printed of its last line, which nothing will end any more."""
        kept = self._unfinished.pop(task, b"")
        return kept + b"\n" if kept else b""


def plain(text: bytes, *, colours: bool = False) -> str:
    """Return what a task printed as text: only the last state of redrawn lines, no control characters."""
    shown = text.decode("utf-8", "replace")
    if "\r" in shown:
        shown = _REDRAWN.sub("", shown.replace("\r\n", "\n"))
    if colours:
        if "\x1b" in shown:
            shown = ESCAPES.sub(lambda found: found[0] if _COLOUR.fullmatch(found[0]) else "", shown)
            shown = shown.replace("\n", "\x1b[0m\n")
        return _CONTROLS_BUT_ESCAPE.sub("", shown)
    if "\x1b" in shown:
        shown = ESCAPES.sub("", shown)
    return _CONTROLS.sub("", shown)


def said(event: Event, state: RunState) -> Iterator[str]:
    """Yield the lines that an event is worth."""
    say = _SAY.get(event["event"])
    if say:
        yield from say(event, state)


def checks_table(state: RunState) -> Iterator[str]:
    """Yield one line per rung of the gate that failed, with its way out."""
    for check in state.checks:
        if not check["ok"] and not check.get("skipped"):
            node = f" on {check['node']}" if check.get("node") else ""
            yield f"  FAILED  {check['name']}{node}: {check['detail']}"
            if check.get("hint"):
                yield f"          -> {check['hint']}"


def _gate(event: Event, state: RunState) -> Iterator[str]:
    done = [check for check in state.checks if not check.get("skipped")]
    if event["ok"]:
        yield f"smoke: {len(done)} checks ok, {event['seconds']:.1f} s"
        return
    failed = sum(1 for check in done if not check["ok"])
    yield f"smoke: {failed} of {len(done)} checks failed, {event['seconds']:.1f} s"
    yield from checks_table(state)


def _attempt_started(event: Event, state: RunState) -> Iterator[str]:
    if event["attempt"] > 1:
        yield f"[{event['task']}] attempt {event['attempt']}{_on(event)}"


def _attempt_ended(event: Event, state: RunState) -> Iterator[str]:
    if event["outcome"] != "succeeded":
        reason = f": {event['reason']}" if event.get("reason") else ""
        yield f"[{event['task']}] attempt {event['attempt']} {in_words(event['outcome'])}{_on(event)}{reason}"


def _on(event: Event) -> str:
    """Name the node; an attempt that ended before it got one has none."""
    return f" on {event['node']}" if event.get("node") else ""


def _task_ended(event: Event, state: RunState) -> Iterator[str]:
    done = state.counts["succeeded"] + state.counts["failed"] + state.counts["stopped"]
    yield f"[{event['task']}] {event['state']} ({done}/{len(state.tasks)})"


def _waiting(event: Event, state: RunState) -> Iterator[str]:
    # Once: when tasks wait for the same again, only numbers differ.
    if not event["again"]:
        yield f"-- {event['text']}"


def _note(event: Event, state: RunState) -> Iterator[str]:
    yield f"-- {event['text']}"


_SAY = {
    "gate": _gate,
    "attempt-started": _attempt_started,
    "attempt-ended": _attempt_ended,
    "task-ended": _task_ended,
    "waiting": _waiting,
    "note": _note,
}
