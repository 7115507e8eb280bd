"""A template and values become a document."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from jinja2 import UndefinedError

from trainyard.render import dollars_doubled, parse, quoted, render

AWKWARD = [
    "yes",
    "1e3",
    "012",
    "~",
    "",
    "a: b # c",
    "- x",
    '"',
    "'",
    "\\",
    "two\nlines\ttab",
    "{{ braces }}",
    "\u2028 \x85 \x7f \ufeff",
    "snow ❄ robot 🤖",
    {"key: x": ["a", 1, 2.5, True, None, {"b": []}]},
]


@pytest.mark.parametrize("value", AWKWARD)
def test_yaml_reads_every_value_as_it_was(value: Any) -> None:
    assert parse(render("found: {{ value }}\n", {"value": value})) == {"found": value}


def test_a_value_is_one_line() -> None:
    assert quoted("a\u2028b\nc") == '"a\\u2028b\\nc"'


def test_a_name_without_a_value_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="'wrong' is undefined"):
        render("x: {{ wrong }}", {"right": 1})


def test_a_field_that_a_value_does_not_have_is_an_error() -> None:
    with pytest.raises(UndefinedError):
        render("x: {{ node.wrong }}", {"node": {"name": "head"}})


def test_what_is_no_plain_value_is_refused() -> None:
    with pytest.raises(TypeError, match="cannot be written into a document"):
        render("x: {{ value }}", {"value": object()})


def test_dollars_are_doubled_in_every_string_for_compose() -> None:
    text = render("{{ value }}", {"value": {"a": "$HOME", "b": ["${X}", 5]}}, change=dollars_doubled)
    assert yaml.safe_load(text) == {"a": "$$HOME", "b": ["$${X}", 5]}


@pytest.mark.parametrize("document", ["- a\n", "a: [", ""])
def test_what_is_no_mapping_is_refused(document: str) -> None:
    with pytest.raises(ValueError, match="the template made"):
        parse(document)
