"""Images and videos among the outputs of a run's tasks: small images inside the page, the rest as files beside it."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from trainyard_runner import tree

from trainyard.results.formats import natural
from trainyard.results.store import RunDirectory

MOST_SHOWN = 96
_LARGEST_INSIDE = 256 * 1024
_ALL_INSIDE = 4 * 1024 * 1024
_IMAGES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".svg": "image/svg+xml",
}
_VIDEOS = (".mp4", ".webm", ".ogv", ".m4v")


@dataclass(frozen=True)
class Medium:
    """One file. `source` is what the page shows, `link` leads to the file."""

    task: str
    name: str
    kind: Literal["image", "video"]
    source: str
    link: str


@dataclass(frozen=True)
class Gallery:
    """What is shown, and how many files are not."""

    shown: tuple[Medium, ...]
    left_out: int


def gather(run: RunDirectory, tasks: Iterable[str]) -> Gallery:
    """Find images and videos; of each task the last ones by name, as many as its share of the page."""
    found = {task: files for task in tasks if (files := sorted(_files(run.outputs(task)), key=natural))}
    share = max(1, MOST_SHOWN // max(len(found), 1))
    chosen = [(task, name) for task, files in found.items() for name in files[-share:]][:MOST_SHOWN]
    shown: list[Medium] = []
    room = _ALL_INSIDE
    for task, name in chosen:
        path = run.outputs(task) / name
        link = quote(os.fsencode(path.relative_to(run.path)))
        inside = _inside(path, room)
        room -= len(inside or "")
        kind: Literal["image", "video"] = "video" if path.suffix.lower() in _VIDEOS else "image"
        shown.append(Medium(task, name, kind, inside or link, link))
    return Gallery(tuple(shown), sum(map(len, found.values())) - len(shown))


def _files(directory: Path) -> Iterator[str]:
    return (name for name in tree.files(str(directory)) if Path(name).suffix.lower() in (*_IMAGES, *_VIDEOS))


def _inside(path: Path, room: int) -> str | None:
    """Return a small image as a data: address; None for what stays a file."""
    kind = _IMAGES.get(path.suffix.lower())
    if kind is None or path.stat().st_size > min(_LARGEST_INSIDE, room * 3 // 4):
        return None
    return f"data:{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"
