"""`--set workers.0.count=2` over the values of a file; a list's entry is meant by its number or its name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from trainyard.errors import Problem
from trainyard.spec.yaml_source import KeyPath, Source, UnreadableError, compose
from trainyard.wording import did_you_mean

FLAG = "--set"


def apply(source: Source, overrides: Sequence[str]) -> Source:
    """Return the source with every `--set PATH=VALUE` on top, the last one winning; the value is YAML.

    What is wrong with a flag is a problem.
    """
    for written in overrides:
        path, equals, value = written.partition("=")
        keys, flag = path.strip().split("."), f"{FLAG} {path.strip()}"
        if not equals or not all(keys):
            problem = Problem(f"{FLAG} {written}", "must be PATH=VALUE, such as workers.0.count=2")
            source = replace(source, problems=(*source.problems, problem))
            continue
        try:
            given = compose(value, origin=flag) if value.strip() else Source(None, {})
        except UnreadableError as error:
            given = Source(None, {}, (error.problem,))
        if given.problems:
            problem = Problem(flag, given.problems[0].message)
            source = replace(source, problems=(*source.problems, problem))
        else:
            source = put(source, keys, given.value, flag=flag)
    return source


def put(source: Source, keys: Sequence[str], value: object, *, flag: str) -> Source:
    """Return the source with one value replaced; its places are then the flag's."""
    try:
        new, path = _replaced(source.value, keys, value, at=())
    except ValueError as error:
        return replace(source, problems=(*source.problems, Problem(flag, str(error))))
    places = {known: place for known, place in source.places.items() if known[: len(path)] != path}
    made = {path[:length]: flag for length in range(1, len(path)) if path[:length] not in places}
    return replace(source, value=new, places={**places, **made, path: flag})


def _replaced(old: Any, keys: Sequence[str], new: object, *, at: KeyPath) -> tuple[Any, KeyPath]:
    """Return a copy of `old` with one value replaced, and the path where that was. Raises ValueError."""
    if not keys:
        return new, at
    key, rest = keys[0], keys[1:]
    if isinstance(old, list):
        index = _index(old, key, at)
        value, path = _replaced(old[index], rest, new, at=(*at, index))
        return [*old[:index], value, *old[index + 1 :]], path
    if old is not None and not isinstance(old, dict):
        raise ValueError(f"{_dotted(at)} is a single value in the file: it has no {key!r}")
    mapping = old or {}
    value, path = _replaced(mapping.get(key), rest, new, at=(*at, key))
    return {**mapping, key: value}, path


def _index(entries: Sequence[Any], key: str, at: KeyPath) -> int:
    """Return which entry of a list is meant: by its number from 0, or by its `name`."""
    names = [str(entry.get("name")) if isinstance(entry, dict) else "" for entry in entries]
    if key in names:
        return names.index(key)
    if key in map(str, range(len(entries))):
        return int(key)
    known = ", ".join(filter(None, names)) or f"numbers below {len(entries)}"
    raise ValueError(f"{_dotted(at)} has no entry {key!r} (there are: {known}){did_you_mean(key, names)}")


def _dotted(path: KeyPath) -> str:
    return ".".join(str(part) for part in path) or "the file"
