from __future__ import annotations

import pytest

from trainyard.spec.units import format_duration, format_size, parse_duration, parse_size

SIZES = {
    "4GiB": 4 * 2**30,
    "500MB": 500_000_000,
    "1KiB": 1024,
    "2TB": 2 * 10**12,
    "1TiB": 2**40,
    "1.5GiB": 3 * 2**29,
    "0.001KB": 1,
    "1000TiB": 1000 * 2**40,
}
DURATIONS = {"90s": 90, "5m": 300, "2h": 7200, "1d": 86400, "0.5s": 0.5, "1.5h": 5400}
NO_SIZES = (
    4,
    4.0,
    None,
    True,
    "",
    "4",
    "GiB",
    "4 GiB",
    "4gib",
    "4GB ",
    "-4GB",
    "1e3GB",
    "4GiB\n",
    "٤GiB",
    "0GiB",
    "4B",
)
NO_DURATIONS = (5, None, True, "", "5", "5 m", "5min", "1:30", "-5m", "0s", "1h30m", "5M")


def test_a_size_is_bytes_and_a_duration_seconds() -> None:
    assert {written: parse_size(written) for written in SIZES} == SIZES
    assert {written: parse_duration(written) for written in DURATIONS} == DURATIONS


@pytest.mark.parametrize("written", NO_SIZES)
def test_anything_else_is_no_size(written: object) -> None:
    with pytest.raises(ValueError, match=r"^must be a size such as 4GiB or 500MB "):
        parse_size(written)


@pytest.mark.parametrize("written", NO_DURATIONS)
def test_anything_else_is_no_duration(written: object) -> None:
    with pytest.raises(ValueError, match=r"^must be a duration such as 90s, 5m, 2h or 1d "):
        parse_duration(written)


@pytest.mark.parametrize(
    "written", ["4GiB", "500MB", "1536MiB", "1TB", "0.001KB", "1234.567KB", "100663.297KB"]
)
def test_a_parsed_size_is_formatted_to_the_same_text(written: str) -> None:
    assert format_size(parse_size(written)) == written


@pytest.mark.parametrize("size", [1, 999, 1001, 1023, 2**40 + 1, 10**12 + 1, 10**15 - 1])
def test_every_size_survives_being_written(size: int) -> None:
    assert parse_size(format_size(size)) == size


@pytest.mark.parametrize(
    "written", ["90s", "5m", "2h", "1d", "0.5s", "3999.6s", "0.06s", "1234567.5s"]
)
def test_a_parsed_duration_is_formatted_to_the_same_text(written: str) -> None:
    assert format_duration(parse_duration(written)) == written
