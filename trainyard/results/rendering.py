"""Pages of one file: a template, our styles, our scripts, and a policy under which nothing else runs or is loaded."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from trainyard.results import formats
from trainyard.wording import clean

_PAGE = Path(__file__).with_name("page")
_SCRIPTS = ("page.js", "chart.js", "curves.js", "logs.js", "live.js")


def write_page(path: Path, template: str, values: Mapping[str, Any]) -> None:
    """Write a page, whole or not at all."""
    script = "\n".join((_PAGE / name).read_text(encoding="utf-8") for name in _SCRIPTS)
    ours = {
        "style": Markup((_PAGE / "page.css").read_text(encoding="utf-8")),  # noqa: S704 - our own file
        "script": Markup(script),  # noqa: S704 - our own file
        "policy": _policy(script),
    }
    page = _environment().get_template(template).stream({**values, **ours})
    # Another command may write the same page.
    part = path.with_name(f".{os.getpid()}.html")
    with part.open("wb") as file:
        page.dump(file, encoding="utf-8", errors="replace")
    part.replace(path)


def _policy(script: str) -> str:
    """Return a content security policy: no script runs but ours, and only media beside the page are loaded."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    media = "img-src 'self' data:; media-src 'self'"
    return f"default-src 'none'; style-src 'unsafe-inline'; {media}; script-src 'sha256-{digest}'"


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_PAGE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_cleaned,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":")}
    environment.filters.update(
        duration=formats.duration,
        size=formats.size,
        number=formats.number,
        utc=formats.utc,
        thousands=lambda count: f"{count:,}",
    )
    return environment


def _cleaned(value: object) -> object:
    return clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value
