"""What a page holds of a run's files: small images, links to other media, and the ends of its attempts' logs."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from trainyard_runner import tree

from trainyard.printable import clean
from trainyard.results.formats import natural
from trainyard.results.state import RunState
from trainyard.results.store import RunDirectory

_MOST_MEDIA = 96
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
_MOST_LOGS = 400
_MOST_OF_ONE_LOG = 200 * 1024
_MOST_OF_ALL_LOGS = 4 * 1024 * 1024


@dataclass(frozen=True)
class Embedded:
    """What is shown, each as the page takes it, and how much of the same kind is not."""

    shown: Sequence[dict[str, Any]]
    left_out: int


def media(run: RunDirectory, tasks: Iterable[str]) -> Embedded:
    """Return images and videos; of each task the last ones by name, as many as its share of the page.

    `source` is what the page shows, `link` leads to the file.
    """
    kinds = (*_IMAGES, *_VIDEOS)
    found: dict[str, list[str]] = {}
    for task in tasks:
        files = [name for name in tree.files(str(run.outputs(task))) if Path(name).suffix.lower() in kinds]
        if files:
            found[task] = sorted(files, key=natural)
    share = max(1, _MOST_MEDIA // max(len(found), 1))
    chosen = [(task, name) for task, files in found.items() for name in files[-share:]][:_MOST_MEDIA]
    shown = []
    room = _ALL_INSIDE
    for task, name in chosen:
        path = run.outputs(task) / name
        link = quote(os.fsencode(path.relative_to(run.path)))
        inside = _inside(path, room)
        room -= len(inside or "")
        kind = "video" if path.suffix.lower() in _VIDEOS else "image"
        shown.append({"task": task, "name": name, "kind": kind, "source": inside or link, "link": link})
    return Embedded(shown, sum(map(len, found.values())) - len(shown))


def logs(run: RunDirectory, state: RunState) -> Embedded:
    """Return the end of each log, those of bad attempts first: an equal share of what there is room for."""
    found = []
    for attempt in state.attempts():
        path = run.log(attempt.task, attempt.number)
        if path.exists() and path.stat().st_size:
            is_only = len(state.tasks[attempt.task].attempts) == 1
            name = attempt.task if is_only else f"{attempt.task} · attempt {attempt.number}"
            found.append(({"name": clean(name), "kind": attempt.kind}, path))
    found.sort(key=lambda log: log[0]["kind"] in ("succeeded", "running"))
    chosen = found[:_MOST_LOGS]
    share = min(_MOST_OF_ONE_LOG, _MOST_OF_ALL_LOGS // max(len(chosen), 1))
    return Embedded([{**named, **_tail(path, share)} for named, path in chosen], len(found) - len(chosen))


def _inside(path: Path, room: int) -> str | None:
    kind = _IMAGES.get(path.suffix.lower())
    if kind is None or path.stat().st_size > min(_LARGEST_INSIDE, room * 3 // 4):
        return None
    return f"data:{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"


def _tail(path: Path, most: int) -> dict[str, object]:
    with path.open("rb") as log:
        size = log.seek(0, 2)
        log.seek(max(0, size - most))
        content = log.read(most)
    if size > most:
        content = content.partition(b"\n")[2] or content
    text = clean(content.decode("utf-8", "replace"))
    return {"link": quote(f"logs/{path.name}"), "text": text, "left_out": size - len(content)}
