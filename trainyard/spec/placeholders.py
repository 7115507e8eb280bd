"""`{seed}` in a command: replaced by the matrix's value; `{{` and `}}` stand for the braces themselves."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping

from trainyard.spec.fields import Complaint
from trainyard.suggest import did_you_mean

_MARK = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_-]*)\}|[{}]")


def fill(text: str, values: Mapping[str, str]) -> str:
    """Return the text with every placeholder replaced; the text was checked before."""
    if "{" not in text and "}" not in text:
        return text
    return _MARK.sub(lambda found: values[found[1]] if found[1] else found[0][0], text)


def unused(keys: Collection[str], texts: Iterable[str]) -> Iterator[Complaint]:
    """Complain about every key of the matrix that no text names: its tasks would all do the same."""
    named = {found[1] for text in texts for found in _MARK.finditer(text)}
    for key in keys:
        if key not in named:
            yield Complaint(("matrix", key), f"is used nowhere: write {{{key}}} into command or env", root=True)


def unknown(texts: Mapping[str, str] | Mapping[int, str], known: Collection[str]) -> Iterator[Complaint]:
    """Complain about every text with a placeholder that is not known, or with a brace on its own."""
    for key, text in texts.items():
        if wrong := _complaint(text, known):
            yield Complaint((key,), wrong[0], text, wrong[1])


def _complaint(text: str, known: Collection[str]) -> tuple[str, str] | None:
    """Return what is wrong with the first bad placeholder or lone brace, and what may have been meant."""
    for found in _MARK.finditer(text):
        name = found[1]
        if name is None and len(found[0]) == 1:
            return f"has a single '{found[0]}'", f"; write '{found[0] * 2}' for the character itself"
        if name is not None and name not in known:
            listed = f"the matrix has {', '.join(known)}" if known else "there is no matrix"
            meant = did_you_mean(name, known) or f"; write '{{{{{name}}}}}' for the text itself"
            return f"names {{{name}}}, but {listed}", meant
    return None
