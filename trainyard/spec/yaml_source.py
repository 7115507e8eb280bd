"""YAML as plain values with lines: no objects, code or endless expansion.

Values follow the YAML 1.2 core schema, but only decimal numbers are numbers.
`no`, `on`, `1:30` and dates are text.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from trainyard.errors import Problem

KeyPath = tuple[str | int, ...]

# The most bytes that a file may have.
LARGEST = 1024 * 1024
DEEPEST = 32
MOST_VALUES = 200_000
# Longer numbers stay text: no file needs them, and Python needs quadratic time to read an integer
# of a million digits.
_DIGITS = 40
_CORE_TAGS = "tag:yaml.org,2002:"
_PLAIN_TAGS = frozenset({f"{_CORE_TAGS}{kind}" for kind in ("str", "map", "seq")})

# Meanings of unquoted values (YAML 1.2.2, section 10.3.2).
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS = {
    "true": True,
    "True": True,
    "TRUE": True,
    "false": False,
    "False": False,
    "FALSE": False,
}
_COMMENT = re.compile(r"(?:^|\s)#")
_INTEGER = re.compile(r"[-+]?[0-9]+")
FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")


@dataclass(frozen=True)
class Source:
    """A file's value, its keys' places, and its problems.

    A place is FILE:LINE, or a flag. `broken` has the paths of keys whose values
    could not be read; they get no further problems.
    """

    value: Any
    places: dict[KeyPath, str]
    problems: tuple[Problem, ...] = ()
    broken: frozenset[KeyPath] = frozenset()


class UnreadableError(Exception):
    """A text that cannot be read at all; `problem` says why."""

    def __init__(self, where: str, message: str) -> None:
        super().__init__(message)
        self.problem = Problem(where, message)


class _Structure(yaml.SafeLoader):
    """Loads the structure of YAML; unquoted values stay text."""

    yaml_implicit_resolvers: Mapping[str, Any] = {}  # type: ignore[assignment]


def compose(text: str, *, origin: str) -> Source:
    """Read one YAML document; places begin with `origin`, the file's name.

    Raises UnreadableError if the text is not YAML, is empty, or is too large.
    """
    reader = _Reader(origin)
    try:
        node = _Structure(text).get_single_node()
        if node is None:
            raise UnreadableError(origin, "is empty")
        value = reader.value(node, ())
    except yaml.reader.ReaderError as error:
        where = f"{origin}:{text.count(chr(10), 0, error.position) + 1}"
        message = f"is not a text file: it contains the character U+{error.character:04X}"
        raise UnreadableError(where, message) from error
    except RecursionError as error:
        raise UnreadableError(origin, f"is nested deeper than {DEEPEST} levels") from error
    # ValueError, OverflowError: the parser's chr() rejects characters beyond Unicode, such as
    # `"\\U00110000"`.
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise _unreadable(error, text, origin) from error
    return Source(value, reader.places, tuple(reader.problems), frozenset(reader.broken))


def has_comment(text: str) -> bool:
    """Say whether YAML would read a part of a text as a comment."""
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
    """Builds values from YAML's nodes.

    Each use of an alias is a copy, whose values count again.
    """

    origin: str
    places: dict[KeyPath, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    broken: set[KeyPath] = field(default_factory=set)
    count: int = 0

    def value(self, node: yaml.Node, path: KeyPath) -> Any:
        """Build a node's value.

        Raises UnreadableError if the value is too deep or too large.
        """
        self.places.setdefault(path, self._place(node))
        self.count += 1
        if len(path) > DEEPEST:
            raise UnreadableError(self._place(node), f"is nested deeper than {DEEPEST} levels")
        if self.count > MOST_VALUES:
            message = f"holds more than {MOST_VALUES:,} values once aliases are followed"
            raise UnreadableError(self._place(node), message)

        if node.tag not in _PLAIN_TAGS:
            self.broken.add(path)
            tag = node.tag.replace(_CORE_TAGS, "!!", 1)
            message = f"has the tag {tag}: files hold plain values, nothing that runs or converts"
            self._problem(node, path, message)

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


def nearest(path: KeyPath, places: Container[KeyPath]) -> KeyPath:
    """Return a path's longest prefix with a place; () is the whole file."""
    while path and path not in places:
        path = path[:-1]
    return path


def located(place: str, path: KeyPath) -> str:
    """Join a place and a path: `lab.yaml:7: workers.0.count`."""
    if not path:
        return place
    dotted = ".".join(str(part) for part in path)
    return f"{place}: {dotted}"


def _scalar(node: yaml.Node) -> Any:
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

    context = ""
    if error.context:
        context = f"{error.context}, "
    if error.context and error.context_mark is not None:
        context = f"{error.context} that begins on line {error.context_mark.line + 1}, "
    hint = ""
    if error.problem and error.problem.endswith("got '{'"):
        hint = "; a word with a {placeholder} needs quotes, such as '--seed={seed}'"
    return UnreadableError(where, f"is not valid YAML: {context}{error.problem}{hint}")


def plain_value(text: str) -> str | int | float | bool | None:
    """Return the value of unquoted text."""
    if text in _NULLS:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if len(text) <= _DIGITS and FLOAT.fullmatch(text):
        if _INTEGER.fullmatch(text):
            return int(text)
        return float(text)
    return text
