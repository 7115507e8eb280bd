"""Events of a run, as a test writes them down."""

from __future__ import annotations

from typing import Any

from trainyard_runner.wire.events import Event, read


def an_event(event: str, **fields: Any) -> Event:
    """Return an event of this kind; a field that the kind requires has to be given."""
    return read({"seq": 0, "time": 1.0, "event": event, **fields})
