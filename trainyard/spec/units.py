"""Sizes and durations as people write them: `4GiB`, `500MB`, `90s`, `5m`."""

from __future__ import annotations

import re
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
DURATIONS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
LARGEST_SIZE = 1000 * SIZES["TiB"]
LONGEST_DURATION = 3650.0 * DURATIONS["d"]

_NUMBER = r"[0-9]{1,12}(?:\.[0-9]{1,3})?"
SIZE_PATTERN = rf"^{_NUMBER}(?:{'|'.join(SIZES)})$"
DURATION_PATTERN = rf"^{_NUMBER}(?:{'|'.join(DURATIONS)})$"

_SIZE = re.compile(rf"({_NUMBER})({'|'.join(SIZES)})")
_DURATION = re.compile(rf"({_NUMBER})({'|'.join(DURATIONS)})")


def parse_size(written: object) -> int:
    """Return bytes. Raises ValueError, naming the accepted units."""
    match = _SIZE.fullmatch(written) if isinstance(written, str) else None
    size = round(Decimal(match[1]) * SIZES[match[2]]) if match else 0
    if size <= 0:
        raise ValueError(f"must be a size such as 4GiB or 500MB (units: {', '.join(SIZES)})")
    if size > LARGEST_SIZE:
        raise ValueError(f"must be at most {format_size(LARGEST_SIZE)}")
    return size


def parse_duration(written: object) -> float:
    """Return seconds. Raises ValueError, naming the accepted units."""
    match = _DURATION.fullmatch(written) if isinstance(written, str) else None
    seconds = float(Decimal(match[1]) * DURATIONS[match[2]]) if match else 0.0
    if seconds <= 0:
        raise ValueError(f"must be a duration such as 90s, 5m, 2h or 1d (units: {', '.join(DURATIONS)})")
    if seconds > LONGEST_DURATION:
        raise ValueError(f"must be at most {format_duration(LONGEST_DURATION)}")
    return seconds


def format_size(size: int) -> str:
    """Return bytes in the largest unit that keeps the number exact: what `parse_size` reads back."""
    exact = [(factor, unit) for unit, factor in SIZES.items() if size % factor == 0]
    if not exact:
        return _three_decimals(size)
    factor, unit = max(exact)
    return f"{size // factor}{unit}"


def format_duration(seconds: float) -> str:
    """Return seconds in the largest unit that keeps the number exact: what `parse_duration` reads back."""
    for unit, factor in reversed(DURATIONS.items()):
        if seconds % factor == 0:
            return f"{int(seconds // factor)}{unit}"
    return f"{seconds:.3f}".rstrip("0").rstrip(".") + "s"


def _three_decimals(size: int) -> str:
    return f"{size / SIZES['KB']:.3f}KB"
