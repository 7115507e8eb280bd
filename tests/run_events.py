"""Make the events of a run, with only the fields that a test is about."""

from __future__ import annotations

from typing import Any

from trainyard_runner.wire.events import Event, read


def an_event(event: str, **fields: Any) -> Event:
    """Return an event of this kind; `fields` must have all that the kind requires."""
    return read({"seq": 0, "time": 1.0, "event": event, **fields})
