"""Files that only we can read: a cluster's token, and what is written down about it."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from typing import Any


def write(path: Path, text: str) -> None:
    """Write a file that only we can read, whole or not at all."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    fresh.replace(path)


def read_json(path: Path) -> Any:
    """Return what a file holds, or None if there is none."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return None


def make_token(path: Path) -> None:
    """Write a new token: 64 hexadecimal digits, as Ray's own."""
    write(path, secrets.token_hex(32))


def read_token(path: Path) -> str | None:
    """Return the token in a file, or None if there is none."""
    try:
        return path.read_text().strip() or None
    except FileNotFoundError:
        return None
