"""`{seed}` in a command: replaced by the matrix's value; `{{` and `}}` stand for the braces themselves."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from trainyard.suggest import did_you_mean

_MARK = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_-]*)\}|[{}]")


def fill(text: str, values: Mapping[str, str]) -> str:
    """Return the text with every placeholder replaced; the text was checked before."""
    if "{" not in text and "}" not in text:
        return text
    return _MARK.sub(lambda found: values[found[1]] if found[1] else found[0][0], text)


def complaint(text: str, known: Collection[str]) -> str | None:
    """Return what is wrong with the first bad placeholder or lone brace, or None."""
    for found in _MARK.finditer(text):
        if found[1] is None and len(found[0]) == 1:
            return f"has a single '{found[0]}': write '{found[0] * 2}' for the character itself"
        if found[1] is not None and found[1] not in known:
            literal = f"write '{{{{{found[1]}}}}}' for the text itself"
            listed = f"the matrix has {', '.join(known)}" if known else "there is no matrix"
            return f"names '{{{found[1]}}}', but {listed}{did_you_mean(found[1], known)} ({literal})"
    return None
