"""Phrases for counts and names; other programs' texts, made safe to print."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

# These escape sequences move a terminal's cursor, set its title or colours, or fill its clipboard
# (ECMA-48, xterm).
ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_]?)")
# Control characters, lone surrogates (bytes that were not UTF-8), and marks that reverse text.
_UNPRINTABLE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)


def counted(count: int, noun: str) -> str:
    if count == 1:
        return f"{count} {noun}"
    return f"{count} {noun}s"


def named(names: Sequence[str], *, most: int = 3) -> str:
    listed = ", ".join(names[:most])
    more = len(names) - most
    if more > 0:
        return f"{listed} and {more} more"
    return listed


def without_name(name: str, message: str) -> str:
    """Remove a leading `name`, for a line that begins with it already."""
    return message.removeprefix(f"{name}: ").removeprefix(f"{name} ")


def all_answer(nodes: int) -> str:
    if nodes > 1:
        return f"All {nodes} nodes answer"
    return "The head answers"


def did_you_mean(wrong: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'X'?` for a name close to `wrong`, else ""."""
    close = difflib.get_close_matches(wrong, list(known), n=1, cutoff=0.6)
    if close:
        return f"; did you mean {close[0]!r}?"
    return ""


def visible(text: str) -> str:
    """Replace unprintable characters by JSON escapes, for a terminal."""
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def clean(text: str) -> str:
    """Remove escape sequences; replace unprintable characters, for HTML."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return _UNPRINTABLE.sub("\ufffd", ESCAPES.sub("", lines))
