"""YAML text -> plain values and the line of each; nothing is constructed, run, or expanded without bound.

Values follow the YAML 1.2 core schema: `no`, `on`, `1:30` and dates are text, as they look.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast

import yaml

from trainyard.errors import Problem

KeyPath = tuple[str | int, ...]

DEEPEST = 32
MOST_VALUES = 1_000_000

# What YAML calls non-printable, and the NUL byte among it (YAML 1.2.2, production 1).
_CONTROL = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# PyYAML's parser in Python hands a character beyond Unicode (`"\\U00110000"`) to chr().
_BROKEN = (yaml.YAMLError, ValueError, OverflowError)

# What PyYAML says, where that helps nobody.
_CLEARER = {
    "mapping values are not allowed here": "a ':' where no key can stand (see the indentation, and the line before)",
    "found unexpected end of stream": "there is no closing quote",
}
_TEXT_TAGS = ("!", "tag:yaml.org,2002:str")
_CORE_TAGS = "tag:yaml.org,2002:"


# What an unquoted value is (YAML 1.2.2, section 10.3.2).
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS = {text: text.lower() == "true" for text in ("true", "True", "TRUE", "false", "False", "FALSE")}

# More digits than any number in these files has: Python needs quadratic time for an integer of a million digits.
_DIGITS = 40
_INTEGER = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_SPECIAL = re.compile(r"([-+]?)\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


@dataclass(frozen=True)
class Source:
    """What a file says: its value, the place of every path, and what is wrong so far.

    `broken` are the paths whose value could not be read; nothing more is to be said about those.
    """

    value: object
    places: dict[KeyPath, str]
    problems: tuple[Problem, ...] = ()
    broken: frozenset[KeyPath] = frozenset()


class UnreadableError(Exception):
    """The text cannot be read any further; carries the one problem."""

    def __init__(self, where: str, message: str) -> None:
        super().__init__(message)
        self.message = message
        self.problem = Problem(where, message)


def compose(text: str, *, origin: str) -> Source:
    """Return the values of one YAML document. `origin` is what a place starts with: the file's name.

    Raises UnreadableError for text that is not YAML at all.
    """
    found = _CONTROL.search(text)
    if found:
        where = f"{origin}:{text.count(chr(10), 0, found.start()) + 1}"
        raise UnreadableError(where, f"is not a text file: it contains the character U+{ord(found[0]):04X}")
    try:
        return _Composer(origin, yaml.parse(text, Loader=_fast_loader())).document()
    except _BROKEN as error:
        raise _unreadable(_exact(text) or error, text, origin) from error


@dataclass
class _Composer:
    """Builds values from parser events; an alias is the value it names, never a copy."""

    origin: str
    events: Iterator[yaml.Event]
    places: dict[KeyPath, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    broken: set[KeyPath] = field(default_factory=set)
    anchors: dict[str, tuple[object, int]] = field(default_factory=dict)
    count: int = 0

    def document(self) -> Source:
        next(self.events)  # the stream starts
        if isinstance(next(self.events), yaml.StreamEndEvent):
            raise UnreadableError(self.origin, "is empty")
        value = self._value(next(self.events), ())
        next(self.events)  # the document ends
        after = next(self.events)
        if not isinstance(after, yaml.StreamEndEvent):
            raise UnreadableError(self._place(after), "starts a second document ('---'): one file holds one")
        if value is None and not self.problems:
            raise UnreadableError(self.origin, "is empty")
        return Source(value, self.places, tuple(self.problems), frozenset(self.broken))

    def _value(self, event: yaml.Event, path: KeyPath) -> object:
        if path not in self.places:
            self.places[path] = self._place(event)
        if len(path) > DEEPEST:
            raise UnreadableError(self._place(event), f"is nested deeper than {DEEPEST} levels")
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event, path)
        began = self.count
        self._more(1, event)
        self._check_tag(event, path)
        value = self._content(event, path)
        anchor = getattr(event, "anchor", None)
        if anchor is not None:
            self.anchors[anchor] = (value, self.count - began)
        return value

    def _content(self, event: yaml.Event, path: KeyPath) -> object:
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(path)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(path)
        scalar = cast("yaml.ScalarEvent", event)  # the parser knows no further kind of value
        return scalar.value if scalar.style or scalar.tag in _TEXT_TAGS else plain_value(scalar.value)

    def _mapping(self, path: KeyPath) -> dict[str, object]:
        mapping: dict[str, object] = {}
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            key = self._key(event, path)
            inner = (*path, "?" if key is None else key)
            if key in mapping:
                line = self.places[inner].rpartition(":")[2]
                self._problem(event, inner, f"is given twice, first on line {line}")
                inner = (*path, f"{key} (again)")
            self.places[inner] = self._place(event)
            value = self._value(next(self.events), inner)
            if key is not None:
                mapping.setdefault(key, value)
        return mapping

    def _key(self, event: yaml.Event, path: KeyPath) -> str | None:
        """Return a key, which is text in both files; None, and a problem, for anything else."""
        if isinstance(event, yaml.ScalarEvent) and event.tag in (None, *_TEXT_TAGS):
            value = event.value if event.style else plain_value(event.value)
            if isinstance(value, str):
                return value
            self._problem(event, path, f"has the key {event.value or 'null'}: keys are text, so write it in quotes")
            return None
        self._value(event, (*path, "?"))
        self._problem(event, path, "has a key that is not text")
        return None

    def _sequence(self, path: KeyPath) -> list[object]:
        sequence: list[object] = []
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            sequence.append(self._value(event, (*path, len(sequence))))
        return sequence

    def _alias(self, event: yaml.AliasEvent, path: KeyPath) -> object:
        if event.anchor not in self.anchors:
            self.broken.add(path)
            self._problem(event, path, f"refers to *{event.anchor}, which is not defined before this line")
            return None
        value, size = self.anchors[event.anchor]
        self._more(size, event)
        return value

    def _check_tag(self, event: yaml.Event, path: KeyPath) -> None:
        tag = getattr(event, "tag", None)
        if tag is None or tag in _TEXT_TAGS:
            return
        shown = tag.replace(_CORE_TAGS, "!!", 1)
        self.broken.add(path)
        self._problem(event, path, f"has the tag {shown}: files hold plain values, nothing that runs or converts")

    def _more(self, values: int, event: yaml.Event) -> None:
        self.count += values
        if self.count > MOST_VALUES:
            raise UnreadableError(
                self._place(event), f"holds more than {MOST_VALUES:,} values once aliases are followed"
            )

    def _place(self, event: yaml.Event) -> str:
        mark = event.start_mark
        return f"{self.origin}:{mark.line + 1}" if mark else self.origin

    def _problem(self, event: yaml.Event, path: KeyPath, message: str) -> None:
        self.problems.append(Problem(located(self._place(event), path), message))


def located(place: str, path: KeyPath) -> str:
    """Return a place and a path as one piece of text: `lab.yaml:7: workers.0.count`."""
    return ": ".join([place, ".".join(str(part) for part in path)]) if path else place


def _fast_loader() -> type[yaml.SafeLoader]:
    """Return libyaml's parser (18 times as fast on a file of 1 MB) where PyYAML was built with it."""
    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _exact(text: str) -> Exception | None:
    """Return the error of the parser in Python: its messages are the same on every machine."""
    try:
        for _ in yaml.parse(text, Loader=yaml.SafeLoader):
            pass
    except _BROKEN as error:
        return error
    return None


def _unreadable(error: Exception, text: str, origin: str) -> UnreadableError:
    mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
    if not isinstance(error, yaml.MarkedYAMLError) or mark is None:
        return UnreadableError(origin, f"is not valid YAML: {error}")
    where = f"{origin}:{mark.line + 1}"
    line = next(itertools.islice(text.splitlines(), mark.line, None), "")
    if "\t" in line[: len(line) - len(line.lstrip())]:
        return UnreadableError(where, "is indented with a tab: use spaces")
    context = f" {error.context}" if error.context else ""
    if error.context and error.context_mark is not None:
        context += f" that begins on line {error.context_mark.line + 1}"
    problem = _CLEARER.get(str(error.problem), str(error.problem)).replace("'<stream end>'", "the end of the file")
    return UnreadableError(where, f"is not valid YAML: {problem}{context}")


def plain_value(text: str) -> str | int | float | bool | None:
    """Return what unquoted text stands for."""
    if text in _NULLS:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    return text if len(text) > _DIGITS else _number(text)


def _number(text: str) -> str | int | float:
    if _INTEGER.fullmatch(text):
        return int(text)
    if _OCTAL.fullmatch(text) or _HEXADECIMAL.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text):
        return float(text)
    if _SPECIAL.fullmatch(text):
        return float(text.lower().replace(".", "", 1))
    return text
