"""A template and values become a document."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from jinja2 import UndefinedError

from trainyard.render import dollars_doubled, render

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
    assert yaml.safe_load(render("found: {{ value }}\n", {"value": value})) == {"found": value}


def test_a_value_is_one_line() -> None:
    assert render("{{ value }}", {"value": "a\u2028b\nc"}) == '"a\\u2028b\\nc"'


@pytest.mark.parametrize("template", ["x: {{ wrong }}", "x: {{ node.wrong }}", "x: {{ thing }}"])
def test_a_template_name_without_a_plain_value_is_an_error(template: str) -> None:
    with pytest.raises((TypeError, UndefinedError)):
        render(template, {"node": {"name": "head"}, "thing": object()})


def test_dollars_are_doubled_in_every_string_for_compose() -> None:
    text = render(
        "{{ value }}", {"value": {"a": "$HOME", "b": ["${X}", 5]}}, change=dollars_doubled
    )
    assert yaml.safe_load(text) == {"a": "$$HOME", "b": ["$${X}", 5]}
