"""A checkpoint as the head announces it, in the event `checkpoint`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# The head's variable with a directory that outlives it, where runs then keep their checkpoints.
STORAGE = "TRAINYARD_CHECKPOINT_STORAGE"


@dataclass(frozen=True)
class KeptCheckpoint:
    """A checkpoint that the head keeps: its content, and the archive that it is in.

    `bytes` and `files` are of the content. `archive_bytes` and `sha256` are of the archive, which
    the next checkpoint of the task replaces; None in a run of an older version.
    """

    bytes: int
    files: int
    archive_bytes: int | None = None
    sha256: str | None = None

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> KeptCheckpoint:
        """Read an event `checkpoint`."""
        return cls(
            bytes=event.get("bytes", 0),
            files=event.get("files", 0),
            archive_bytes=event.get("archive_bytes"),
            sha256=event.get("sha256"),
        )
