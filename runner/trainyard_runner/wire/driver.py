"""Metadata of Ray jobs: they name the attempt whose command is the driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_RUN = "trainyard_run"
_TASK = "trainyard_task"
_ATTEMPT = "trainyard_attempt"


def left_in_words(actors: int, groups: int) -> str:
    """Count, in words, the actors and groups that drivers left; "" for none."""
    parts = []
    for count, name in [(actors, "detached actor"), (groups, "detached placement group")]:
        if count:
            plural = "s" if count > 1 else ""
            parts.append(f"{count} {name}{plural}")
    return " and ".join(parts)


def is_run(metadata: Mapping[str, str]) -> bool:
    """Return whether a Ray job is a Trainyard run or an attempt's driver."""
    return _RUN in metadata


@dataclass(frozen=True)
class Driver:
    """The attempt whose command connected to Ray."""

    run: str
    task: str
    attempt: int

    def metadata(self) -> dict[str, str]:
        """Return the metadata of the driver's Ray job; Ray takes only text."""
        return {_RUN: self.run, _TASK: self.task, _ATTEMPT: str(self.attempt)}

    @classmethod
    def of(cls, metadata: Mapping[str, str]) -> Driver | None:
        """Return the attempt that metadata name; None if they name no task."""
        if _TASK not in metadata:
            return None
        attempt = 0
        text = metadata.get(_ATTEMPT, "")
        if text.isdecimal():
            attempt = int(text)
        return cls(metadata.get(_RUN, ""), metadata[_TASK], attempt)
