"""YAML text -> plain values and the line of each; nothing is constructed, run, or expanded without
bound.

Values follow the YAML 1.2 core schema, of numbers the decimal ones: `no`, `on`, `1:30` and dates
are text.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from trainyard.errors import Problem

KeyPath = tuple[str | int, ...]

# Bytes of a file.
LARGEST = 1024 * 1024
DEEPEST = 32
MOST_VALUES = 200_000
# More digits than any number in these files has: Python needs quadratic time for an integer of a
# million digits.
_DIGITS = 40
_CORE_TAGS = "tag:yaml.org,2002:"
_PLAIN_TAGS = frozenset({f"{_CORE_TAGS}{kind}" for kind in ("str", "map", "seq")})

# What an unquoted value is (YAML 1.2.2, section 10.3.2).
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS = {
    text: text.lower() == "true" for text in ("true", "True", "TRUE", "false", "False", "FALSE")
}
_COMMENT = re.compile(r"(?:^|\s)#")
_INTEGER = re.compile(r"[-+]?[0-9]+")
FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")


@dataclass(frozen=True)
class Source:
    """What a file says: its value, the place of every path, and what is wrong so far.

    `broken` are the paths whose value could not be read; nothing more is to be said about those.
    """

    value: Any
    places: dict[KeyPath, str]
    problems: tuple[Problem, ...] = ()
    broken: frozenset[KeyPath] = frozenset()


class UnreadableError(Exception):
    """The text cannot be read any further; carries the one problem."""

    def __init__(self, where: str, message: str) -> None:
        super().__init__(message)
        self.problem = Problem(where, message)


class _Structure(yaml.SafeLoader):
    """Reads what stands where, and leaves it to us what an unquoted value stands for."""

    yaml_implicit_resolvers: Mapping[str, Any] = {}  # type: ignore[assignment]


def compose(text: str, *, origin: str) -> Source:
    """Return the values of one YAML document. `origin` is what a place starts with: the file's
    name.

    Raises UnreadableError for text that is not YAML at all.
    """
    reader = _Reader(origin)
    try:
        node = _Structure(text).get_single_node()
        value = None if node is None else reader.value(node, ())
    except yaml.reader.ReaderError as error:
        where = f"{origin}:{text.count(chr(10), 0, error.position) + 1}"
        message = f"is not a text file: it contains the character U+{error.character:04X}"
        raise UnreadableError(where, message) from error
    except RecursionError as error:
        raise UnreadableError(origin, f"is nested deeper than {DEEPEST} levels") from error
    # The parser hands a character beyond Unicode (`"\\U00110000"`) to chr().
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise _unreadable(error, text, origin) from error

    if node is None:
        raise UnreadableError(origin, "is empty")

    return Source(value, reader.places, tuple(reader.problems), frozenset(reader.broken))


def has_comment(text: str) -> bool:
    """Tell whether YAML would leave something out of a text."""
    try:
        tokens = [token for token in yaml.scan(text) if isinstance(token, yaml.ScalarToken)]
    except (yaml.YAMLError, ValueError, OverflowError):
        return False
    for sign in _COMMENT.finditer(text):
        if not any(token.start_mark.index < sign.end() <= token.end_mark.index for token in tokens):
            return True
    return False


@dataclass
class _Reader:
    """Builds values from YAML's nodes. An alias is read once more at each use, so that uses are
    values of their own.
    """

    origin: str
    places: dict[KeyPath, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    broken: set[KeyPath] = field(default_factory=set)
    count: int = 0

    def value(self, node: yaml.Node, path: KeyPath) -> Any:
        """Return what a node stands for. Raises UnreadableError where it is too deep or too
        much.
        """
        self.places.setdefault(path, self._place(node))
        self.count += 1
        if len(path) > DEEPEST:
            raise UnreadableError(self._place(node), f"is nested deeper than {DEEPEST} levels")
        if self.count > MOST_VALUES:
            raise UnreadableError(
                self._place(node),
                f"holds more than {MOST_VALUES:,} values once aliases are followed",
            )

        if node.tag not in _PLAIN_TAGS:
            self.broken.add(path)
            shown = node.tag.replace(_CORE_TAGS, "!!", 1)
            self._problem(
                node,
                path,
                f"has the tag {shown}: files hold plain values, nothing that runs or converts",
            )

        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(entry, (*path, index)) for index, entry in enumerate(node.value)]

        if "\0" in node.value:
            self.broken.add(path)
            self._problem(node, path, "must not contain a NUL character")

        return _scalar(node)

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = _scalar(key_node)
            inner = (*path, str(key))
            if not isinstance(key, str):
                self._problem(key_node, path, "has a key that is not text: write it in quotes")
            elif key in mapping:
                line = self.places[inner].rpartition(":")[2]
                self._problem(key_node, inner, f"is given twice, first on line {line}")
            else:
                self.places[inner] = self._place(key_node)
                mapping[key] = self.value(value_node, inner)
        return mapping

    def _place(self, node: yaml.Node) -> str:
        return f"{self.origin}:{node.start_mark.line + 1}"

    def _problem(self, node: yaml.Node, path: KeyPath, message: str) -> None:
        self.problems.append(Problem(located(self._place(node), path), message))


def located(place: str, path: KeyPath) -> str:
    """Return a place and a path as one piece of text: `lab.yaml:7: workers.0.count`."""
    if path:
        return ": ".join([place, ".".join(str(part) for part in path)])
    return place


def _scalar(node: yaml.Node) -> Any:
    """Return a single value; None for anything else."""
    if not isinstance(node, yaml.ScalarNode):
        return None
    if node.style:
        return node.value
    return plain_value(node.value)


def _unreadable(error: Exception, text: str, origin: str) -> UnreadableError:
    mark = None
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark
    if not isinstance(error, yaml.MarkedYAMLError) or mark is None:
        return UnreadableError(origin, f"is not valid YAML: {error}")
    where = f"{origin}:{mark.line + 1}"
    line = next(itertools.islice(text.splitlines(), mark.line, None), "")
    if "\t" in line[: len(line) - len(line.lstrip())]:
        return UnreadableError(where, "is indented with a tab: use spaces")
    context = f"{error.context}, " if error.context else ""
    if error.context and error.context_mark is not None:
        context = f"{error.context} that begins on line {error.context_mark.line + 1}, "
    return UnreadableError(where, f"is not valid YAML: {context}{error.problem}")


def plain_value(text: str) -> str | int | float | bool | None:
    """Return what unquoted text stands for."""
    if text in _NULLS:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if len(text) <= _DIGITS and FLOAT.fullmatch(text):
        if _INTEGER.fullmatch(text):
            return int(text)
        return float(text)
    return text
