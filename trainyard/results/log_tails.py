"""The ends of the attempts' logs, as far as a page can hold them, to be searched in it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from trainyard.printable import clean
from trainyard.results import story, timeline
from trainyard.results.story import Story

MOST_LOGS = 400
_MOST_OF_ONE = 200 * 1024
_MOST_OF_ALL = 4 * 1024 * 1024


@dataclass(frozen=True)
class LogTails:
    """Logs as the page's script takes them, those of bad attempts first."""

    shown: tuple[dict[str, object], ...]
    left_out: int


def gather(told: Story) -> LogTails:
    """Read the end of each log: an equal share of what there is room for."""
    found = [
        (
            timeline.kind(attempt),
            f"{task.name} · attempt {attempt.number}" if len(task.attempts) > 1 else task.name,
            path,
        )
        for task, attempt in story.attempts(told)
        if (path := told.run.log(task.name, attempt.number)).exists() and path.stat().st_size
    ]
    found.sort(key=lambda log: log[0] in ("succeeded", "running"))
    chosen = found[:MOST_LOGS]
    share = min(_MOST_OF_ONE, _MOST_OF_ALL // max(len(chosen), 1))
    shown = tuple({"name": clean(name), "kind": kind, **_tail(path, share)} for kind, name, path in chosen)
    return LogTails(shown, len(found) - len(shown))


def _tail(path: Path, most: int) -> dict[str, object]:
    with path.open("rb") as log:
        size = log.seek(0, 2)
        log.seek(max(0, size - most))
        content = log.read(most)
    if size > most:
        content = content.partition(b"\n")[2] or content
    return {
        "link": quote(f"logs/{path.name}"),
        "text": clean(content.decode("utf-8", "replace")),
        "left_out": size - len(content),
    }
