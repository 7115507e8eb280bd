"""The snaps of a host, as snapd lists them."""

from __future__ import annotations

from dataclasses import dataclass

# The channel of a snap that was installed from a file.
FROM_FILE = "-"


@dataclass(frozen=True)
class Snap:
    """A snap in `snap list`: v1.34.2, of channel 1.34/stable or FROM_FILE."""

    version: str
    channel: str
    is_held: bool
    is_disabled: bool


def first(listed: str) -> Snap | None:
    """Return the first snap in the output of `snap list`, if any.

    Its columns are Name Version Rev Tracking Publisher Notes, below a header.
    """
    lines = listed.splitlines()
    if len(lines) < 2:
        return None
    words = lines[1].split()
    notes = words[5].split(",")
    return Snap(words[1], words[3], is_held="held" in notes, is_disabled="disabled" in notes)
