"""The files that an attempt left, as the event of its end reports them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainyard_runner.wire.events import AttemptEnded


@dataclass(frozen=True)
class Named:
    """Several files: their count, and the first names.

    A name is that of a file, or of a whole directory. `more` is the number of
    files that `names` does not cover.
    """

    count: int = 0
    names: tuple[str, ...] = ()
    more: int = 0

    @classmethod
    def of(cls, recorded: object) -> Named:
        """Read an event's field; a malformed field names no files."""
        if not isinstance(recorded, Mapping) or not isinstance(recorded.get("names"), list):
            return cls()
        names = tuple(name for name in recorded["names"] if isinstance(name, str))
        return cls(_whole(recorded.get("count")), names, _whole(recorded.get("more")))


@dataclass(frozen=True)
class AttemptFiles:
    """An attempt's outputs that the head received, and its other files.

    `files` and `bytes` count the received outputs. `not_brought` are outputs
    that stayed behind, each with the reason. `absent` are declared outputs that
    did not exist at the end. `undeclared` are files that the attempt wrote or
    changed outside its outputs.
    """

    files: int = 0
    bytes: int = 0
    not_brought: Named = Named()
    absent: tuple[str, ...] = ()
    undeclared: Named = Named()

    @classmethod
    def of(cls, event: AttemptEnded) -> AttemptFiles | None:
        """Read an attempt's end; None if the node reported no files."""
        brought = event.brought
        if not brought:
            return None
        return cls(
            _whole(brought.get("files")),
            _whole(brought.get("bytes")),
            Named.of(event.not_brought),
            tuple(event.absent_outputs),
            Named.of(event.undeclared),
        )


def _whole(value: object) -> int:
    if type(value) is int and value > 0:
        return value
    return 0
