"""`--set workers.0.count=2` over the values of a file; a list's entry is meant by its number or its name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from trainyard.errors import Problem
from trainyard.spec.yaml_source import KeyPath, Source, UnreadableError, compose
from trainyard.suggest import did_you_mean

FLAG = "--set"


@dataclass(frozen=True)
class Override:
    """One value that wins over the file's: the keys as written, the value, and the flag it came from."""

    keys: tuple[str, ...]
    value: object
    flag: str


class UnusableError(Exception):
    """The flag does not fit the file."""


def apply(source: Source, overrides: Sequence[str]) -> Source:
    """Return the source with every `--set` on top, the last one winning; what is wrong with a flag is a problem."""
    for written in overrides:
        parsed = parse(written)
        source = _with_problems(source, (parsed,)) if isinstance(parsed, Problem) else put(source, parsed)
    return source


def split(overrides: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what `train.dispatch --set` means for the cluster file (`cluster.` in front) and for the job file."""
    prefix = "cluster."
    cluster = tuple(written.removeprefix(prefix) for written in overrides if written.startswith(prefix))
    return cluster, tuple(written for written in overrides if not written.startswith(prefix))


def parse(written: str) -> Override | Problem:
    """Return what `PATH=VALUE` asks for; the value is YAML, as it would stand in the file."""
    path, equals, value = written.partition("=")
    keys = tuple(path.strip().split("."))
    flag = f"{FLAG} {path.strip()}"
    if not equals or not all(keys):
        return Problem(f"{FLAG} {written}", "must be PATH=VALUE, such as workers.0.count=2")
    if not value.strip():
        return Override(keys, None, flag)
    try:
        source = compose(value, origin=flag)
    except UnreadableError as error:
        return Problem(flag, "must not be empty" if error.message == "is empty" else error.message)
    if source.problems:
        return Problem(flag, source.problems[0].message)
    return Override(keys, source.value, flag)


def put(source: Source, override: Override) -> Source:
    """Return the source with one value replaced; nothing of the given source is changed."""
    try:
        value, path = _replaced(source.value, override.keys, override.value, at=())
    except UnusableError as error:
        return _with_problems(source, (Problem(override.flag, str(error)),))
    places = {known: place for known, place in source.places.items() if known[: len(path)] != path}
    new = {path[:length]: override.flag for length in range(1, len(path)) if path[:length] not in places}
    broken = frozenset(known for known in source.broken if known[: len(path)] != path)
    return replace(source, value=value, places={**places, **new, path: override.flag}, broken=broken)


def _replaced(old: object, keys: Sequence[str], new: object, *, at: KeyPath) -> tuple[object, KeyPath]:
    """Return a copy of `old` with one value replaced, and the path where that was."""
    if not keys:
        return new, at
    key, rest = keys[0], keys[1:]
    if isinstance(old, list):
        index = _index(old, key, at)
        value, path = _replaced(old[index], rest, new, at=(*at, index))
        return [*old[:index], value, *old[index + 1 :]], path
    if old is not None and not isinstance(old, Mapping):
        raise UnusableError(f"{_dotted(at)} is a single value in the file: it has no {key!r}")
    mapping = dict(old or {})
    value, path = _replaced(mapping.get(key), rest, new, at=(*at, key))
    return {**mapping, key: value}, path


def _index(entries: Sequence[object], key: str, at: KeyPath) -> int:
    """Return which entry of a list is meant: by its number from 0, or by its `name`."""
    if key.isascii() and key.isdigit():
        if len(key) < 10 and int(key) < len(entries):
            return int(key)
        raise UnusableError(f"{_dotted(at)} has {_count(len(entries))}, numbered from 0: there is no {key}")
    names = [entry.get("name") if isinstance(entry, Mapping) else None for entry in entries]
    if key in names:
        return names.index(key)
    known = [name for name in names if isinstance(name, str)]
    listed = f" (names: {', '.join(known)})" if known else ""
    raise UnusableError(f"{_dotted(at)} has no entry {key!r}{listed}{did_you_mean(key, known)}")


def _dotted(path: KeyPath) -> str:
    return ".".join(str(part) for part in path) or "the file"


def _count(number: int) -> str:
    return "1 entry" if number == 1 else f"{number} entries"


def _with_problems(source: Source, problems: Iterable[Problem]) -> Source:
    return replace(source, problems=(*source.problems, *problems))
