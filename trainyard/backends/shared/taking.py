"""Take keys from another tool's document, and list the paths of the rest."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

Step = str | int


class Taking:
    """A copy of a document from which keys are taken.

    An item that is taken from a list becomes None.
    """

    def __init__(self, document: Mapping[str, Any]) -> None:
        # The copy is deep. With a YAML anchor, one object is at two places of the document, and
        # `take` must change only one of them.
        self._left = _copied(document)

    def take(self, *path: Step) -> Any:
        """Remove and return the value at a path; None without a value."""
        *above, last = path
        holder = self.see(*above)
        if isinstance(holder, dict):
            return holder.pop(last, None)
        if isinstance(holder, list) and isinstance(last, int) and last < len(holder):
            value = holder[last]
            holder[last] = None
            return value
        return None

    def see(self, *path: Step) -> Any:
        """Return the value at a path; None if it is missing or was taken."""
        found: Any = self._left
        for step in path:
            if isinstance(found, dict):
                found = found.get(step)
            elif isinstance(found, list) and isinstance(step, int) and step < len(found):
                found = found[step]
            else:
                return None
        return found

    def left(self) -> list[str]:
        """Return the paths (`a.b.c`) of all scalars that are not taken yet."""
        return list(_paths(self._left))


def as_name(written: str) -> str:
    """Make a valid name of a cluster or group from another tool's name."""
    name = re.sub(r"[^a-z0-9]+", "-", written.lower()).strip("-") or "ray"
    if not name[0].isalpha():
        name = f"ray-{name}"
    return name[:40].rstrip("-")


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copied(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_copied(inner) for inner in value]
    return value


def _paths(value: object, path: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _paths(inner, f"{path}.{key}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _paths(inner, f"{path}.{index}")
    elif value is not None:
        yield path.removeprefix(".")
