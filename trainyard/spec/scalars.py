"""What an unquoted YAML value is: null, true or false, a number, else text (YAML 1.2.2, section 10.3.2)."""

from __future__ import annotations

import re

NULLS = frozenset({"", "~", "null", "Null", "NULL"})
BOOLEANS = {text: text.lower() == "true" for text in ("true", "True", "TRUE", "false", "False", "FALSE")}

# More digits than any number in these files has: Python needs quadratic time for an integer of a million digits.
_DIGITS = 40
_INTEGER = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_SPECIAL = re.compile(r"([-+]?)\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


def plain_value(text: str) -> str | int | float | bool | None:
    """Return what unquoted text stands for."""
    if text in NULLS:
        return None
    if text in BOOLEANS:
        return BOOLEANS[text]
    return text if len(text) > _DIGITS else _number(text)


def _number(text: str) -> str | int | float:
    if _INTEGER.fullmatch(text):
        return int(text)
    if _OCTAL.fullmatch(text) or _HEXADECIMAL.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text):
        return float(text)
    if _SPECIAL.fullmatch(text):
        return float(text.lower().replace(".", "", 1))
    return text
