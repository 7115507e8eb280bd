"""Fill a YAML template; every value is quoted as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from jinja2 import Environment, StrictUndefined

# YAML rejects these characters, or reads them as line ends; json.dumps does not escape them.
_ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def render(template: str, values: Mapping[str, Any], *, change: Callable[[str], str] = str) -> str:
    """Fill the template with values as JSON, which YAML reads unchanged.

    `change` is applied to the JSON text of each value. A name without a value
    raises jinja2.UndefinedError.
    """
    environment = Environment(
        undefined=StrictUndefined,
        finalize=lambda value: change(_quoted(value)),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 (this is YAML; quoting is what finalize does)
    )
    return environment.from_string(template).render(**values)


def dollars_doubled(text: str) -> str:
    """Double each `$`, so that Docker Compose interpolates nothing."""
    return text.replace("$", "$$")


def _quoted(value: object) -> str:
    text = json.dumps(value, default=dict, ensure_ascii=False, sort_keys=True)
    return _ESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
