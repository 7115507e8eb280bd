"""Read a cluster file, or a job's or image's directory.

`--set` takes precedence over the file, and the file over defaults.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from trainyard.errors import Problem, RequestError
from trainyard.paths import shown
from trainyard.spec import foreign, ray_forms
from trainyard.spec.cluster import ClusterSpec, LoadedCluster
from trainyard.spec.fields import Section, takes_text_alone
from trainyard.spec.image import ImageFile
from trainyard.spec.job import JobSpec
from trainyard.spec.problems import problems_of, value_text, where
from trainyard.spec.secrets import HIDDEN
from trainyard.spec.yaml_source import (
    LARGEST,
    KeyPath,
    Source,
    UnreadableError,
    compose,
    has_comment,
)
from trainyard.wording import did_you_mean

CLUSTER_FILE = "cluster file"
JOB_FILE = "job file"
JOB_FILE_NAME = "job.yaml"
IMAGE_FILE = "image file"
RUNTIME_ENV_FILE = "runtime_env file"
IMAGE_FILE_NAME = "image.yaml"

FLAG = "--set"
SHOWN_HIDDEN = "was hidden when this file was written: fill in the value"
MOST_SHOWN = 100

Model = TypeVar("Model", bound=Section)
_QUOTED = re.compile(r"""\s*(?:"(?:[^"\\]|\\.)*"|'(?:[^']|'')*')\s*""")
_JOB_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")


def load_cluster(
    path: Path, *, overrides: Sequence[str] = (), backend: str | None = None
) -> LoadedCluster:
    """Load a cluster file; `backend` overrides the file's.

    Raises RequestError with every problem at once.
    """
    with _naming_its_tool(path, CLUSTER_FILE):
        source = _source(path, CLUSTER_FILE, ClusterSpec, overrides)
        if backend is not None:
            source = _put(source, ["backend"], backend, flag="--backend")
        return LoadedCluster(_validated(ClusterSpec, source, CLUSTER_FILE), path)


@contextmanager
def _naming_its_tool(path: Path, kind: str) -> Iterator[None]:
    """Replace the problems of another tool's file by the name of the tool."""
    try:
        yield
    except RequestError as error:
        tool = foreign.kind_of(foreign.documents_of(path))
        if tool is None or tool.ours == kind:
            raise
        raise RequestError(
            f"{shown(path)} is {tool.name}, and no {kind}", hint=tool.remedy
        ) from error


def job_of(keys: Mapping[str, Any], *, directory: Path) -> JobSpec:
    """Return the job of a job file's keys and `name`. Raises RequestError.

    Files that `runtime_env` names are relative to `directory`.
    """
    # The values that a file would have: lists instead of tuples, text instead of paths.
    values = json.loads(json.dumps(keys, default=str))
    source = _with_lists(Source(values, {(): "Job"}), directory)
    return _validated(JobSpec, _named(source, str(keys["name"]), "Job"), "job")


def load_job(
    directory: Path, *, overrides: Sequence[str] = (), file: Path | None = None
) -> JobSpec:
    """Load a directory's job, from its job.yaml or from `file`.

    Raises RequestError with every problem at once.
    """
    path = file or directory / JOB_FILE_NAME
    with _naming_its_tool(path, JOB_FILE):
        source = _source(path, JOB_FILE, JobSpec, overrides)
        env_file = source.value.get("runtime_env")
        if isinstance(env_file, str):
            env = _source(directory / env_file, RUNTIME_ENV_FILE, JobSpec, ())
            source = _put_below("runtime_env", env, source)

        source = _with_lists(source, directory)
        if "name" in source.value:
            message = "must not be given: a job's name is its directory's name"
            source = _with_problem(source, where(("name",), source), message)
        named = _named(source, directory.resolve().name, shown(directory))
        return _validated(JobSpec, named, JOB_FILE)


def _with_lists(source: Source, directory: Path) -> Source:
    """Replace Ray's other forms of a runtime_env by lists."""
    written = source.value.get("runtime_env")
    if not isinstance(written, Mapping):
        return source
    env, problems = ray_forms.as_lists(written, directory)
    value = {**source.value, "runtime_env": env}
    return replace(source, value=value, problems=(*source.problems, *problems))


def load_image(directory: Path) -> ImageFile:
    """Load a directory's image.yaml. Raises RequestError."""
    source = _source(directory / IMAGE_FILE_NAME, IMAGE_FILE, ImageFile, ())
    return _validated(ImageFile, source, IMAGE_FILE)


def load_other(path: Path, model: type[Model], kind: str) -> Model:
    """Load another tool's YAML file. Raises RequestError."""
    return _validated(model, _source(path, kind, model, ()), kind)


def _named(source: Source, name: str, where: str) -> Source:
    """Add the job's name, and a problem if the name is invalid."""
    if not _JOB_NAME.fullmatch(name):
        rule = (
            "letters, digits, '.', '_' and '-', start with a letter or digit, at most 80 characters"
        )
        message = f"must have a name of {rule}: it is the job's name, got {value_text(name)}"
        source = _with_problem(source, where, message)
    return replace(source, value={**source.value, "name": name})


def _with_problem(source: Source, where: str, message: str) -> Source:
    return replace(source, problems=(*source.problems, Problem(where, message)))


def _source(path: Path, kind: str, model: type[Section], overrides: Sequence[str]) -> Source:
    """Read a file, and apply the `--set` flags."""
    try:
        source = compose(_read_text(path, kind=kind), origin=shown(path))
    except UnreadableError as error:
        raise _refusal(kind, (error.problem,)) from error
    if not isinstance(source.value, Mapping):
        message = f"must be a mapping of keys to values, got {value_text(source.value)}"
        problem = Problem(source.places[()], message)
        raise _refusal(kind, source.problems or (problem,))
    return _overridden(source, model, overrides)


def _put_below(key: str, file: Source, source: Source) -> Source:
    """Insert another file's values below a key, with that file's places."""
    places = {(key, *path): place for path, place in file.places.items()}
    broken = {(key, *path) for path in file.broken}
    return Source(
        value={**source.value, key: file.value},
        places={**source.places, **places},
        problems=(*source.problems, *file.problems),
        broken=source.broken | broken,
    )


def _overridden(source: Source, model: type[Section], overrides: Sequence[str]) -> Source:
    """Apply each `--set PATH=VALUE`; the last flag for a path wins.

    A value is read as YAML, but unquoted text literally if the key accepts only
    text. A mistake becomes a problem of the source.
    """
    for written in overrides:
        path, equals, value = written.partition("=")
        keys = path.strip().split(".")
        flag = f"{FLAG} {path.strip()}"

        if not equals or not all(keys):
            message = "must be PATH=VALUE, such as workers.0.count=2"
            source = _with_problem(source, f"{FLAG} {written}", message)
            continue

        given = _given(value, flag, is_text=takes_text_alone(model, keys))
        if given.problems:
            source = _with_problem(source, flag, given.problems[0].message)
        else:
            source = _put(source, keys, given.value, flag=flag)
    return source


def _given(value: str, flag: str, *, is_text: bool) -> Source:
    """Read a flag's value; "" and null give None, which unsets a key."""
    if value.strip() in ("", "null"):
        return Source(None, {})
    if is_text and not _QUOTED.fullmatch(value):
        return Source(value, {})
    if has_comment(value):
        message = (
            f"YAML leaves out what follows ' #': put the value in quotes, got {value_text(value)}"
        )
        return Source(None, {}, (Problem(flag, message),))
    try:
        return compose(value, origin=flag)
    except UnreadableError as error:
        return Source(None, {}, (error.problem,))


def _put(source: Source, keys: Sequence[str], value: object, *, flag: str) -> Source:
    """Insert a flag's value; its problems name the flag."""
    try:
        new, path = _replaced(source.value, keys, value, at=())
    except ValueError as error:
        return _with_problem(source, flag, str(error))

    places = {}
    for known, place in source.places.items():
        if known[: len(path)] != path:
            places[known] = place
    for length in range(1, len(path)):
        # Sections that exist only because of the flag.
        places.setdefault(path[:length], flag)
    places[path] = flag
    return replace(source, value=new, places=places)


def _replaced(old: Any, keys: Sequence[str], new: object, *, at: KeyPath) -> tuple[Any, KeyPath]:
    """Return `old` with one value replaced, and the value's path.

    Raises ValueError for an impossible path.
    """
    if not keys:
        return new, at
    key = keys[0]
    rest = keys[1:]
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
    """Find an entry by its `name`, or by its number from 0.

    Raises ValueError for an unknown entry.
    """
    names = []
    for entry in entries:
        if isinstance(entry, dict):
            names.append(str(entry.get("name")))
        else:
            names.append("")

    if key in names:
        return names.index(key)
    if key in map(str, range(len(entries))):
        return int(key)
    known = ", ".join(filter(None, names)) or f"numbers below {len(entries)}"
    raise ValueError(
        f"{_dotted(at)} has no entry {key!r} (there are: {known}){did_you_mean(key, names)}"
    )


def _dotted(path: KeyPath) -> str:
    return ".".join(str(part) for part in path) or "the file"


def _validated(model: type[Model], source: Source, kind: str) -> Model:
    """Validate a source as a model. Raises RequestError with all problems."""
    hidden = []
    no_text = []
    for path, text in _texts(source.value):
        if HIDDEN in text:
            hidden.append(Problem(where(path, source), SHOWN_HIDDEN))
        if not _is_utf_8(text):
            no_text.append(Problem(where(path, source), "is not UTF-8 text"))
    if no_text:
        raise _refusal(kind, (*source.problems, *hidden, *no_text))

    source = replace(source, problems=(*source.problems, *hidden))
    try:
        # A context, even an empty one, says that sizes and durations are a file's text (fields.py).
        spec = model.model_validate(source.value, context={})
    except ValidationError as error:
        raise _refusal(kind, (*source.problems, *problems_of(error, model, source))) from error
    if source.problems:
        raise _refusal(kind, source.problems)
    return spec


def _texts(value: object, path: KeyPath = ()) -> Iterator[tuple[KeyPath, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _texts(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _texts(inner, (*path, index))


def _is_utf_8(text: str) -> bool:
    """Say whether UTF-8 can encode a text.

    Python turns other bytes of a command line into lone surrogates, which UTF-8
    cannot encode.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _read_text(path: Path, *, kind: str) -> str:
    """Read a file as UTF-8. Raises UnreadableError."""
    origin = shown(path)
    try:
        # Reading a pipe would block.
        if path.exists() and not path.is_file():
            raise UnreadableError(origin, f"is a directory or a special file, not a {kind}")
        with path.open("rb") as stream:
            content = stream.read(LARGEST + 1)
    except (OSError, ValueError) as error:
        reason = str(error)
        if isinstance(error, OSError) and error.strerror:
            reason = error.strerror
        raise UnreadableError(origin, f"cannot be read: {reason}") from error

    if len(content) > LARGEST:
        raise UnreadableError(origin, f"is larger than 1 MiB, the limit for a {kind}")

    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UnreadableError(f"{origin}:{line}", "is not UTF-8 text") from error


def _refusal(kind: str, problems: tuple[Problem, ...]) -> RequestError:
    if len(problems) == 1:
        count = "1 problem"
    else:
        count = f"{len(problems):,} problems"
    rest = len(problems) - MOST_SHOWN
    hint = None
    if rest > 0:
        hint = f"{rest:,} more problems are not shown."
    return RequestError(f"the {kind} is wrong: {count}", problems=problems[:MOST_SHOWN], hint=hint)
