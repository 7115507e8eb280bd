"""Docker's daemon.json with one more registry that may be spoken to without TLS; every other key stays as it is."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from trainyard.errors import PrerequisiteError
from trainyard.seams.docker.daemon import Daemon

KEY = "insecure-registries"


def has(path: Path, address: str) -> bool:
    """Say whether the settings name the registry. Raises PrerequisiteError for settings that Docker cannot read."""
    return address in _read(path).get(KEY, ())


def add(path: Path, address: str, *, backup: Path, hint: str) -> None:
    """Put the registry into the settings: keys, their order and the indentation stay, and a copy of them is left.

    A link is followed, so that it stays one; mode and owner stay too. Raises PrerequisiteError, with `hint` when it is
    not allowed.
    """
    settings = _read(path)
    settings[KEY] = [*settings.get(KEY, ()), address]
    target = path.resolve()
    new = target.with_name(f"{target.name}.trainyard-new")
    with _explained(path, hint):
        target.parent.mkdir(parents=True, exist_ok=True)
        new.write_text(json.dumps(settings, indent=_indentation(target), ensure_ascii=False) + "\n", encoding="utf-8")
        if target.exists():
            shutil.copyfile(target, backup)
            for copy in (new, backup):
                os.chown(copy, target.stat().st_uid, target.stat().st_gid)
                shutil.copystat(target, copy)
        new.replace(target)


def backup_of(path: Path, *, now: datetime) -> Path:
    """Return what the copy of a file is called that is made before it is changed."""
    return path.with_name(f"{path.name}.{now:%Y%m%d-%H%M%S}")


def refuse_flag(daemon: Daemon, address: str) -> None:
    """Refuse what would keep Docker from starting: one setting both as a flag and in the file."""
    if any(word.startswith("--insecure-registry") for word in daemon.arguments):
        raise PrerequisiteError(
            "dockerd is started with --insecure-registry, and does not start if its file has such settings as well",
            where=f"dockerd (pid {daemon.pid})",
            hint=f"Add the flag --insecure-registry={address} there (systemctl edit docker), and restart Docker.",
        )


def write_for_all(path: Path, content: bytes, *, hint: str) -> None:
    """Write a file that everybody may read, whatever root's umask is, with the directories above it."""
    with _explained(path, hint):
        missing = [directory for directory in path.parents if not directory.exists()]
        path.parent.mkdir(parents=True, exist_ok=True)
        for directory in missing:
            directory.chmod(0o755)
        path.write_bytes(content)
        path.chmod(0o644)


@contextmanager
def _explained(path: Path, hint: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise PrerequisiteError(f"{path} cannot be written: {error.strerror}", hint=hint) from error


def _read(path: Path) -> dict[str, Any]:
    # dockerd takes no file, and an empty one, for no settings.
    try:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        settings = json.loads(text) if text.strip() else {}
    except json.JSONDecodeError as error:
        raise _unreadable(f"is not JSON: {error.msg}", f"{path}:{error.lineno}:{error.colno}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise PrerequisiteError(f"{path} cannot be read: {error}", hint="Look at it as root: sudo less") from error
    if not isinstance(settings, dict):
        raise _unreadable("is not a JSON object", str(path))
    if not isinstance(settings.get(KEY, []), list):
        raise _unreadable(f"has {KEY} that are not a list", str(path))
    return settings


def _unreadable(what: str, where: str) -> PrerequisiteError:
    return PrerequisiteError(
        f"Docker's settings file {what}",
        where=where,
        hint="Docker would not start with it. Repair it, then repeat this command; nothing was changed.",
    )


def _indentation(path: Path) -> str | int:
    """Return how the file is indented; two spaces where that cannot be seen."""
    found = re.search(r"^\{\s*\n([ \t]+)\S", path.read_text(encoding="utf-8")) if path.exists() else None
    return found[1] if found else 2
