"""A directory's git repository: its revision, version and changed files."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

_SECONDS = 10.0


def revision(directory: Path) -> dict[str, Any] | None:
    """Return {"revision", "dirty"}; None without a commit or git."""
    head = _git(directory, "rev-parse", "HEAD")
    changed = _git(directory, "status", "--porcelain", "--untracked-files=normal")
    if head is None or changed is None:
        return None
    return {"revision": head, "dirty": bool(changed)}


def top(directory: Path) -> Path | None:
    """Return the top of a directory's repository; None without one or git."""
    path = _git(directory, "rev-parse", "--show-toplevel")
    if path is None:
        return None
    return Path(path)


def described(directory: Path) -> str | None:
    """Return what tools take as version: the nearest tag, commit and changes.

    None outside of a repository, without git, or before the first commit.
    """
    return _git(directory, "describe", "--tags", "--long", "--dirty", "--always", "--abbrev=40")


def changed(top: Path) -> tuple[str, ...]:
    """Return the tracked files, even removed ones, that differ from HEAD."""
    names = _output(top, "diff", "--name-only", "--no-renames", "-z", "HEAD") or b""
    return tuple(os.fsdecode(name) for name in names.split(b"\0") if name)


def _git(directory: Path, *arguments: str) -> str | None:
    output = _output(directory, *arguments)
    if output is None:
        return None
    return os.fsdecode(output).strip()


def _output(directory: Path, *arguments: str) -> bytes | None:
    # --no-optional-locks: git does not write the repository's index.
    command = ["git", "--no-optional-locks", "-C", str(directory), *arguments]
    try:
        return subprocess.run(command, capture_output=True, check=True, timeout=_SECONDS).stdout
    except (OSError, subprocess.SubprocessError):
        return None
