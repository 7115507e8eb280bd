"""A document of another tool from which keys are taken; the paths of the rest are named."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

Step = str | int


class Taking:
    """A document, without the keys taken from it. Lists keep their length, so paths stay right."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        # A copy: a value that an anchor of YAML repeats can then be taken twice.
        self._left = _copied(document)

    def take(self, *path: Step) -> Any:
        """Return the value at a path and remove it; None if there is none."""
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
        """Return the value left at a path; None if there is none."""
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
        """Return the paths of all single values left: `spec.headGroupSpec.serviceType`."""
        return list(_paths(self._left))


def as_name(written: str) -> str:
    """Return a valid name of a cluster or group, as near as possible to another tool's."""
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
