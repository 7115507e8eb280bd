"""Did you mean ...?"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(wrong: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'X'?` when something known is close to what was written, else nothing."""
    close = difflib.get_close_matches(wrong, list(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""
