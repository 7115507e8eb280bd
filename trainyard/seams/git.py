"""Ask git which revision a directory is at."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

_SECONDS = 10.0


def revision(directory: Path) -> dict[str, Any] | None:
    """Return {"revision", "dirty"} of the repository that holds a directory, or None outside of one or without git."""
    head = _git(directory, "rev-parse", "HEAD")
    changed = _git(directory, "status", "--porcelain", "--untracked-files=normal")
    return None if head is None or changed is None else {"revision": head, "dirty": bool(changed)}


def top(directory: Path) -> Path | None:
    """Return the top of the repository that holds a directory, or None outside of one or without git."""
    found = _git(directory, "rev-parse", "--show-toplevel")
    return None if found is None else Path(found)


def _git(directory: Path, *arguments: str) -> str | None:
    # --no-optional-locks: only look, never write the repository's index
    command = ["git", "--no-optional-locks", "-C", str(directory), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=_SECONDS).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
