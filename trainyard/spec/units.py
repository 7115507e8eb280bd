"""Sizes and durations as people write them: `4GiB`, `500MB`, `90s`, `5m`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal

SIZES = {
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
}
GIB = SIZES["GiB"]
DURATIONS = {"s": 1, "m": 60, "h": 3600, "d": 86400}

_NUMBER = r"[0-9]{1,12}(?:\.[0-9]{1,3})?"
SIZE_PATTERN = rf"^{_NUMBER}(?:{'|'.join(SIZES)})$"
DURATION_PATTERN = rf"^{_NUMBER}(?:{'|'.join(DURATIONS)})$"


class NoSizeError(ValueError):
    """The text is not a size, or a size that no machine has."""


def parse_size(written: object) -> int:
    """Return bytes. Raises NoSizeError."""
    size = round(_amount(written, SIZES))
    if not 0 < size <= 1000 * SIZES["TiB"]:
        raise NoSizeError(
            f"must be a size such as 4GiB or 500MB (units: {', '.join(SIZES)}), at most 1000TiB"
        )
    return size


def parse_duration(written: object) -> float:
    """Return seconds. Raises ValueError."""
    seconds = float(_amount(written, DURATIONS))
    if not 0 < seconds <= 3650 * DURATIONS["d"]:
        raise ValueError(
            f"must be a duration such as 90s, 5m, 2h or 1d (units: {', '.join(DURATIONS)}), at "
            "most 3650d"
        )
    return seconds


def format_size(size: int) -> str:
    """Return bytes in the largest exact unit, as `parse_size` reads it."""
    exact = [unit for unit, factor in SIZES.items() if size % factor == 0]
    if not exact:
        return f"{size / SIZES['KB']:.3f}KB"
    unit = max(exact, key=lambda name: SIZES[name])
    return f"{size // SIZES[unit]}{unit}"


def format_duration(seconds: float) -> str:
    """Write seconds in the largest exact unit, as `parse_duration` reads it."""
    for unit, factor in reversed(DURATIONS.items()):
        if seconds % factor == 0:
            return f"{int(seconds // factor)}{unit}"
    return f"{seconds:.3f}".rstrip("0").rstrip(".") + "s"


def size_of_others(written: object) -> str | None:
    """Return Docker's 512m or Kubernetes' 512Mi as 512MiB; None for other text.

    Powers of 2 are assumed, as in Docker.
    """
    if not isinstance(written, str):
        return None
    match = re.fullmatch(rf"({_NUMBER}) ?([KMGTkmgt])i?[Bb]?", written)
    if match is None:
        return None
    return f"{match[1]}{match[2].upper()}iB"


def _amount(written: object, units: Mapping[str, int]) -> Decimal:
    """Return number times unit; 0 if the text is no number with a unit."""
    if not isinstance(written, str):
        return Decimal(0)
    match = re.fullmatch(rf"({_NUMBER})({'|'.join(units)})", written)
    if match is None:
        return Decimal(0)
    return Decimal(match[1]) * units[match[2]]
