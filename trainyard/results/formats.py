"""Numbers as people read them."""

from __future__ import annotations

import datetime
import re


def duration(seconds: float | None) -> str:
    """Return "0.42 s", "12.3 s", "4 min 05 s", "2 h 07 min", "3 d 04 h"."""
    if seconds is None:
        return "–"
    if seconds < 59.95:
        if seconds < 1:
            return f"{seconds:.2f} s"
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes:02d} min"
    return f"{hours // 24} d {hours % 24:02d} h"


def age(seconds: float) -> str:
    """Return an age in words, such as "40 s ago", "5 min ago" or "2 d ago"."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size:.0f} {unit} ago"
    return f"{max(0.0, seconds):.0f} s ago"


def size(count: float | None) -> str:
    """Return bytes as "512 B", "4.2 KiB", "1.5 GiB"."""
    from pydantic import ByteSize  # here, because `trainyard --list` must not load pydantic

    if count is None:
        return "–"
    return ByteSize(count).human_readable(separator=" ")


def number(value: float | None) -> str:
    if value is None:
        return "–"
    # A larger number gets an exponent: 1e308 has 309 digits.
    if 10_000 <= abs(value) < 1e15:
        return f"{value:,.0f}"
    return f"{value:,.4g}"


def scalar(value: str | bool | float) -> str:
    """Return a parameter's value as short text; booleans as in YAML."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return number(value)
    return str(value)


def utc(moment: float, *, readable: bool = False) -> str:
    """Return a moment in UTC, as ISO 8601 or readable."""
    if readable:
        form = "%Y-%m-%d %H:%M:%S UTC"
    else:
        form = "%Y-%m-%dT%H:%M:%SZ"
    return datetime.datetime.fromtimestamp(moment, datetime.timezone.utc).strftime(form)


def natural(name: str) -> list[str]:
    """Return a sort key that counts numbers as such: a2 comes before a10."""
    parts = []
    for part in re.split(r"([0-9]+)", name):
        if part.isdigit():
            part = part.zfill(12)
        parts.append(part)
    return parts
