from __future__ import annotations

import pytest

from trainyard.spec.yaml_source import UnreadableError, compose, plain_value

TEXTS = (
    "no",
    "yes",
    "on",
    "y",
    "1:30",
    "2024-01-01",
    "1_000",
    "0o10",
    "0x1F",
    ".inf",
    "=",
    "<<",
    "1.2.3",
    "é",
)


@pytest.mark.parametrize("text", TEXTS)
def test_text_that_yaml_1_1_would_convert_stays_text(text: str) -> None:
    assert plain_value(text) == text


def test_the_core_schema_of_yaml_1_2_is_followed() -> None:
    text = "[~, null, true, False, 3, -3, 010, 1.5, .5, 1e3, \"1\", 'true']"
    values = [None, None, True, False, 3, -3, 10, 1.5, 0.5, 1000.0, "1", "true"]
    assert str(compose(text, origin="file").value) == str(values)
    assert plain_value("") is None


def test_a_million_digits_are_text_and_cost_nothing() -> None:
    assert isinstance(plain_value("9" * 1_000_000), str)


def test_every_path_has_the_line_of_its_key() -> None:
    source = compose(
        "name: lab\nworkers:\n  - name: gpu\n    cpus: 2\n  - name: cpu\n", origin="lab.yaml"
    )
    lines = {("workers",): 2, ("workers", 0, "cpus"): 4, ("workers", 1): 5}
    assert {path: source.places[path] for path in lines} == {
        path: f"lab.yaml:{line}" for path, line in lines.items()
    }


def test_aliases_windows_lines_and_comments_are_fine() -> None:
    text = "# a file\r\na: &x {cpus: 1} # a comment\r\nb: *x\r\n"
    assert compose(text, origin="file").value == {"a": {"cpus": 1}, "b": {"cpus": 1}}


def test_a_character_beyond_unicode_is_a_problem() -> None:
    with pytest.raises(UnreadableError, match="is not valid YAML"):
        compose('a: "\\U00110000"\nb: "\\UFFFFFFFF"\n', origin="file")
