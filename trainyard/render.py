"""A template and values become a document: every value quoted, nothing left open, parsed before anybody uses it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, StrictUndefined

# YAML reads these as line ends, or not at all, unless they are escaped; json.dumps leaves them as they are.
_ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
Change = Callable[[str], str]


def render(template: str, values: Mapping[str, Any], *, change: Change = str) -> str:
    """Return the template with its values; each is written as JSON, which YAML reads as the very same value.

    `change` is applied to every string within them. A name without a value is an error.
    """
    environment = Environment(
        undefined=StrictUndefined,
        finalize=lambda value: quoted(value, change=change),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 (this is YAML; quoting is what finalize does)
    )
    return environment.from_string(template).render(**values)


def parse(document: str) -> dict[str, Any]:
    values: dict[str, Any] = yaml.safe_load(document)
    return values


def quoted(value: object, *, change: Change = str) -> str:
    text = json.dumps(_changed(value, change), ensure_ascii=False, sort_keys=True)
    return _ESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def dollars_doubled(text: str) -> str:
    """Return a text that Docker Compose leaves alone: to it, `$NAME` is a variable and `$$` a dollar sign."""
    return text.replace("$", "$$")


def template(directory: Path, name: str) -> str:
    return (directory / name).read_text(encoding="utf-8")


def _changed(value: Any, change: Change) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {str(key): _changed(inner, change) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_changed(entry, change) for entry in value]
    return value
