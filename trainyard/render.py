"""A template and values become a document: every value quoted, nothing left open."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from jinja2 import Environment, StrictUndefined

# YAML reads these as line ends, or not at all, unless they are escaped; json.dumps leaves them as
# they are.
_ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def render(template: str, values: Mapping[str, Any], *, change: Callable[[str], str] = str) -> str:
    """Return the template with its values, as JSON, which YAML reads as the very same values.

    `change` is applied to the text of each. A name without a value is an error.
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
    """Return a text that Docker Compose leaves alone: `$$` is its dollar sign."""
    return text.replace("$", "$$")


def _quoted(value: object) -> str:
    text = json.dumps(value, default=dict, ensure_ascii=False, sort_keys=True)
    return _ESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
