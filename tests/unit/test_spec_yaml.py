from __future__ import annotations

import pytest

from trainyard.spec.yaml_source import UnreadableError, compose, plain_value


def value_of(text: str) -> object:
    return compose(text, origin="file").value


@pytest.mark.parametrize(
    "text",
    ["no", "yes", "on", "off", "y", "1:30", "2024-01-01", "1_000", "0o10", "0x1F", ".inf", "=", "<<", "1.2.3", "é"],
)
def test_what_yaml_1_1_converted_is_text(text: str) -> None:
    assert plain_value(text) == text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("~", None),
        ("null", None),
        ("true", True),
        ("False", False),
        ("3", 3),
        ("-3", -3),
        ("010", 10),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1e3", 1000.0),
    ],
)
def test_the_core_schema_of_yaml_1_2_is_followed(text: str, value: object) -> None:
    found = plain_value(text)

    assert found == value
    assert type(found) is type(value)


def test_a_million_digits_are_text_and_cost_nothing() -> None:
    assert isinstance(plain_value("9" * 1_000_000), str)


def test_what_stands_in_quotes_is_text() -> None:
    assert value_of("""[ "1", 'true' ]""") == ["1", "true"]


def test_every_path_has_the_line_of_its_key() -> None:
    source = compose("name: lab\nworkers:\n  - name: gpu\n    cpus: 2\n  - name: cpu\n", origin="lab.yaml")

    assert source.places[("workers",)] == "lab.yaml:2"
    assert source.places[("workers", 0, "cpus")] == "lab.yaml:4"
    assert source.places[("workers", 1)] == "lab.yaml:5"


def test_an_alias_is_the_value_it_names() -> None:
    assert value_of("a: &x {cpus: 1}\nb: *x\n") == {"a": {"cpus": 1}, "b": {"cpus": 1}}


def test_a_byte_order_mark_windows_lines_and_comments_are_fine() -> None:
    assert value_of("# a file\r\nname: lab # its name\r\n---\r\n".removesuffix("---\r\n")) == {"name": "lab"}


def test_a_character_beyond_unicode_is_a_problem() -> None:
    with pytest.raises(UnreadableError, match="is not valid YAML"):
        compose('a: "\\U00110000"\nb: "\\UFFFFFFFF"\n', origin="file")
