"""The event `checkpoint`, with which the head announces that it keeps a task's checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# This variable of the head's environment names a directory that outlives the head. If it is set,
# runs keep their checkpoints there.
STORAGE = "TRAINYARD_CHECKPOINT_STORAGE"


@dataclass(frozen=True)
class KeptCheckpoint:
    """A checkpoint that the head keeps in an archive, until the task's next checkpoint replaces it.

    `bytes` and `files`: size and number of the files in the checkpoint. `archive_bytes` and
    `sha256`: size and digest of the archive, None in events that an older Trainyard wrote.
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
