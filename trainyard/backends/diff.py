"""In what two documents differ, path by path; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

# What tells the items of a list apart; a list whose items have none of these is compared as a whole.
NAMES = ("groupName", "mountPath", "name")


@dataclass(frozen=True)
class Difference:
    """A path at which two documents differ, such as `spec.groups[gpu].env[HOME]`; None where one has nothing there."""

    path: str
    old: Any = None
    new: Any = None


def differences(old: Any, new: Any, path: str = "") -> list[Difference]:
    """Return every difference, at the deepest path at which both have something; in the order of `old`."""
    return list(_differences(old, new, path))


def in_words(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Say how two descriptions of a node differ: "cpus: 1 now, 2 wanted".

    Values of variables (`env`) are not shown: some of them are secrets.
    """
    return [_sentence(each) for each in sorted(differences(old, new), key=lambda each: each.path)]


def _sentence(difference: Difference) -> str:
    path, old, new = difference.path, difference.old, difference.new
    if path.startswith(("env.", "mount ")):
        return f"{path} is {'gone' if new is None else 'new' if old is None else 'another'}"
    return f"{path}: {old or 'none'} now, {new or 'none'} wanted"


def _differences(old: Any, new: Any, path: str) -> Iterator[Difference]:
    if old == new:
        return
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in {**old, **new}:
            yield from _differences(old.get(key), new.get(key), f"{path}.{key}" if path else str(key))
        return
    was, becomes = _by_name(old), _by_name(new)
    if was is None or becomes is None:
        yield Difference(path, old, new)
        return
    for name in {**was, **becomes}:
        yield from _differences(was.get(name), becomes.get(name), f"{path}[{name}]")


def _by_name(items: Any) -> dict[str, Any] | None:
    """Return the items of a list by their names, None if they have none."""
    if not isinstance(items, list) or not all(isinstance(item, Mapping) for item in items):
        return None
    for key in NAMES:
        if all(key in item for item in items):
            return {str(item[key]): item for item in items}
    return None
