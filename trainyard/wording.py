"""Nodes, numbers and names as people say them; and what others wrote, made fit to be printed."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

# What moves a terminal's cursor, sets its title or colours, fills its clipboard (ECMA-48, xterm).
ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_]?)")
# Control characters, halves of surrogate pairs (bytes that were not UTF-8), and what makes text run
# backwards.
_UNPRINTABLE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)


def counted(count: int, noun: str) -> str:
    if count == 1:
        return f"{count} {noun}"
    return f"{count} {noun}s"


def named(names: Sequence[str], *, most: int = 3) -> str:
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def last_line(text: str) -> str:
    """Return the last line, where programs say why they failed; "" for an empty text."""
    return text.strip().rpartition("\n")[2]


def without_name(name: str, message: str) -> str:
    """Return what is said of something, for a place where its name stands before it."""
    return message.removeprefix(f"{name}: ").removeprefix(f"{name} ")


def all_answer(nodes: int) -> str:
    if nodes > 1:
        return f"All {nodes} nodes answer"
    return "The head answers"


def did_you_mean(wrong: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'X'?` when something known is close to what was written, else
    nothing.
    """
    close = difflib.get_close_matches(wrong, list(known), n=1, cutoff=0.6)
    if close:
        return f"; did you mean {close[0]!r}?"
    return ""


def visible(text: str) -> str:
    """Return a name, reason or message with what a terminal would obey written out, as JSON would
    write it.
    """
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def clean(text: str) -> str:
    """Return text for a page: colours and cursor movements are gone, and what is unprintable is
    marked.
    """
    return _UNPRINTABLE.sub(
        "\ufffd", ESCAPES.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    )
