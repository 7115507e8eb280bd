"""Placeholders {key} in command and env, for values of matrix or sweep."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Annotated

from pydantic import BeforeValidator
from trainyard_runner.wire.space import MARK

from trainyard.spec.fields import Complaint, matching
from trainyard.spec.yaml_source import KeyPath
from trainyard.wording import did_you_mean

KEY_PATTERN = r"^[A-Za-z_][A-Za-z0-9_-]*$"
Scalar = str | bool | int | float


def unused(
    keys: Collection[str], texts: Iterable[str], *, section: KeyPath = ("matrix",)
) -> Iterator[Complaint]:
    """Reject keys that no text uses: their values would change no task."""
    named = {mark[1] for text in texts for mark in MARK.finditer(text)}
    for key in keys:
        if key not in named:
            yield Complaint(
                (*section, key), f"is used nowhere: write {{{key}}} into command or env"
            )


def unknown(
    section: str,
    texts: Mapping[str, str] | Mapping[int, str],
    known: Collection[str],
    *,
    source: str = "matrix",
) -> Iterator[Complaint]:
    """Complain of each placeholder not in `known`, and of each single brace."""
    for key, text in texts.items():
        for mark in MARK.finditer(text):
            name = mark[1]
            if name is None and len(mark[0]) == 1:
                meant = f"; write '{mark[0] * 2}' for the character itself"
                yield Complaint((section, key), f"has a single '{mark[0]}'", text, meant)
            elif name is not None and name not in known:
                # The space of a sweep always has "repeat".
                listed = "there is no matrix"
                if known:
                    listed = f"the {source} has {', '.join(known)}"

                literal = "{{" + name + "}}"
                meant = did_you_mean(name, known) or f"; write '{literal}' for the text itself"
                yield Complaint((section, key), f"names {{{name}}}, but {listed}", text, meant)


def _checked_scalar(value: object) -> object:
    if not isinstance(value, Scalar):
        raise ValueError("must be text, a number, true or false")
    return value


MatrixValue = Annotated[Scalar, BeforeValidator(_checked_scalar)]
MatrixKey = Annotated[
    str,
    matching(KEY_PATTERN[1:-1], "must be letters, digits, '_' and '-', and start with a letter"),
]
