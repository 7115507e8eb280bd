"""One event of a run, as its stream or events.jsonl says it: checked before anybody relies on it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from trainyard.errors import OutsideError

Event = Mapping[str, Any]
_NONE = type(None)

# What JSON has for each field, whichever event it is in; fields that are not here are nobody's yet.
_TYPES: dict[str, tuple[type, ...]] = {
    name: types
    for types, names in (
        ((str,), "event task text state outcome file sha256 name detail"),
        ((str, _NONE), "node node_id error reason hint group cpu system driver python ray"),
        ((int,), "seq attempt at exit bytes files number"),
        ((int, float, _NONE), "time seconds exit_code cpu_seconds max_rss cores memory"),
        ((bool,), "ok skipped whole each_attempt"),
        ((list,), "gpus tail needs holders removed left_out lost_outputs"),
        ((dict, _NONE), "output packages"),
    )
    for name in names.split()
}
# Beyond 1e11 is no date, and nobody waits so many seconds; sizes may be larger.
_MOST = {"bytes": 1e16, "max_rss": 1e16, "memory": 1e16}
_REQUIRED = {
    "output": ("task", "attempt", "at", "text"),
    "attempt-started": ("task", "attempt"),
    "attempt-ended": ("task", "attempt", "outcome"),
    "task-ended": ("task", "state"),
    "checkpoint": ("task", "attempt"),
    "outputs": ("task", "attempt", "number", "file", "bytes", "sha256", "whole", "removed", "each_attempt"),
    "check": ("name", "ok", "detail"),
    "node": ("name",),
    "gate": ("ok", "seconds"),
    "note": ("text",),
    "waiting": ("text",),
    "run-ended": ("state", "exit", "seconds"),
}


def parse(line: bytes, *, where: str, hint: str) -> dict[str, Any]:
    """Return an event. Raises OutsideError when the line is none."""
    try:
        event: dict[str, Any] = json.loads(line)
        if not isinstance(event, dict):
            raise ValueError("it is no JSON object")
        _check(event, ("seq", "time", "event"))
        _check(event, _REQUIRED.get(event["event"], ()))
        if event.get("output"):
            _check(event["output"], ("file", "bytes", "sha256"))
        if event.get("state", "failed") not in ("succeeded", "failed", "stopped"):
            raise ValueError(f"state is {event['state'][:80]!r}")
    # AttributeError: no object; RecursionError: 10,000 lists inside each other
    except (ValueError, AttributeError, RecursionError) as error:
        raise OutsideError(f"not an event of Trainyard's runner: {error}", where=where, hint=hint) from error
    return event


def _check(fields: dict[str, Any], required: tuple[str, ...]) -> None:
    for name in required:
        if fields.get(name) is None:
            raise ValueError(f"{name} is missing")
    for name, value in fields.items():
        if name in _TYPES and not (type(value) in _TYPES[name] and _is_sound(value, below=_MOST.get(name, 1e11))):
            raise ValueError(f"{name} is {repr(value)[:80]}")


def _is_sound(value: object, *, below: float = 1e11) -> bool:
    if isinstance(value, str):
        # Bytes that are no UTF-8 travel as halves of surrogate pairs; nothing stands for the other halves.
        value.encode("utf-8", "surrogateescape")
    if isinstance(value, list):
        return all(isinstance(item, str) and _is_sound(item) for item in value)
    # NaN is in no interval.
    return not isinstance(value, (int, float)) or -1e9 < value < below
