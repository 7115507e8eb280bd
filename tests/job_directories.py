"""Write directories of jobs, and list what of them is sent."""

from __future__ import annotations

from pathlib import Path

from trainyard.dispatch.package import listing


def write(root: Path, files: dict[str, str]) -> Path:
    """Write files (name -> text) into a directory; return it."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def sent(root: Path) -> list[str]:
    return [file.name for file in listing(root).files]
