"""Text that others wrote (tasks, clusters, registries, files of somebody else), made fit to be printed."""

from __future__ import annotations

import re

# What moves a terminal's cursor, sets its title or colours, fills its clipboard (ECMA-48, xterm).
ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_]?)")
# Control characters, halves of surrogate pairs (bytes that were not UTF-8), and what makes text run backwards.
UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """Return a name, reason or message with what a terminal would obey written out, as JSON would write it."""
    return UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def clean(text: str) -> str:
    """Return text for a page: colours and cursor movements are gone, and what is unprintable is marked."""
    return UNPRINTABLE.sub("\ufffd", ESCAPES.sub("", text.replace("\r\n", "\n").replace("\r", "\n")))
