"""A resolved file as people and programs read it: defaults marked, secrets hidden, and good to be loaded again."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, get_args

import yaml
from pydantic import BaseModel

from trainyard.spec.cluster import Backend, ClusterSpec
from trainyard.spec.fields import HIDDEN, SECRET_NAME
from trainyard.spec.job import JobSpec
from trainyard.spec.yaml_source import KeyPath, plain_value

MARK = "  # default"
ENVIRONMENTS = ("env", "env_vars")
# What is not ours to lay out: `null` and empty mappings mean something there.
VERBATIM = ("kuberay", "operator", "values")

# Text that needs no quotes in YAML 1.2; the second pattern is what YAML 1.1 readers would take for a boolean.
_PLAIN = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./=+@%-]*")
_YAML_1_1 = re.compile(r"y|n|yes|no|on|off|[0-9].*", re.IGNORECASE)


def default_paths(spec: BaseModel) -> frozenset[KeyPath]:
    """Return the path of every single value that nobody wrote."""
    return frozenset(_defaults(spec, (), inherited=False))


def as_json(spec: ClusterSpec | JobSpec) -> dict[str, Any]:
    """Return the resolved file as one JSON document: its values, and under `defaults` the paths nobody wrote."""
    dotted = sorted(".".join(str(part) for part in path) for path in default_paths(spec))
    return {**_values(spec), "defaults": dotted}


def as_yaml(spec: ClusterSpec | JobSpec) -> str:
    """Return the resolved file as YAML, every default marked; it loads again to the same spec.

    Of a cluster's backends only its own has a section.
    """
    values = _values(spec)
    if isinstance(spec, ClusterSpec):
        backends = set(get_args(get_args(Backend)[0]))
        values = {key: value for key, value in values.items() if key not in backends - {spec.backend}}
    head = [f"# job: {values.pop('name')}"] if isinstance(spec, JobSpec) else []
    return "\n".join([*head, *_mapping(values, (), default_paths(spec))]) + "\n"


def _values(spec: BaseModel) -> dict[str, Any]:
    """Return the values as they would stand in a file: sizes and durations with units, secrets hidden."""
    values = _hidden(spec.model_dump(mode="json"))
    return {key: value for key, value in values.items() if value is not None}


def _hidden(value: Any, path: KeyPath = ()) -> Any:
    if path == VERBATIM:
        return _hidden_anywhere(value)
    if isinstance(value, list):
        return [_hidden(entry, (*path, index)) for index, entry in enumerate(value)]
    if not isinstance(value, dict):
        return value
    if path and path[-1] in ENVIRONMENTS:
        return {name: HIDDEN if SECRET_NAME.search(name) else text for name, text in value.items()}
    return {name: _hidden(inner, (*path, name)) for name, inner in value.items()}


def _hidden_anywhere(value: Any, *, is_secret: bool = False) -> Any:
    """Hide text and numbers below every key that is called like a secret, and variables as pods have them."""
    if isinstance(value, list):
        return [_hidden_anywhere(entry, is_secret=is_secret) for entry in value]
    if isinstance(value, dict):
        variable = value.get("name") if "value" in value else None
        named = isinstance(variable, str) and bool(SECRET_NAME.search(variable))
        return {
            name: _hidden_anywhere(
                inner, is_secret=is_secret or bool(SECRET_NAME.search(name)) or (named and name == "value")
            )
            for name, inner in value.items()
        }
    return HIDDEN if is_secret and value is not None and not isinstance(value, bool) else value


def _defaults(value: object, path: KeyPath, *, inherited: bool) -> Iterator[KeyPath]:
    """Yield every leaf below a value that is a default, or that stands in a section that is one."""
    if isinstance(value, BaseModel):
        for name in type(value).model_fields:
            is_default = inherited or name not in value.model_fields_set
            yield from _defaults(getattr(value, name), (*path, name), inherited=is_default)
    elif isinstance(value, tuple) and value and isinstance(value[0], BaseModel):
        for index, entry in enumerate(value):
            yield from _defaults(entry, (*path, index), inherited=inherited)
    elif inherited:
        yield path


def _mapping(values: Mapping[str, Any], path: KeyPath, defaults: frozenset[KeyPath]) -> Iterator[str]:
    for key, value in values.items():
        inner = (*path, key)
        if value is None:
            continue
        if inner == VERBATIM and value:
            yield f"{key}: {json.dumps(value, ensure_ascii=False)}"
            continue
        if isinstance(value, dict) and any(entry is not None for entry in value.values()):
            yield f"{_scalar(key)}:"
            yield from (f"  {line}" for line in _mapping(value, inner, defaults))
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            yield f"{_scalar(key)}:"
            for index, entry in enumerate(value):
                yield from _entry(list(_mapping(entry, (*inner, index), defaults)))
        else:
            # A mapping that comes here with keys is a section in which everything was left out.
            is_default = inner in defaults or (isinstance(value, dict) and bool(value))
            yield f"{_scalar(key)}: {_flow(value)}{MARK if is_default else ''}"


def _entry(lines: list[str]) -> Iterator[str]:
    """Yield the lines of a mapping as one entry of a list."""
    yield from (f"{'  - ' if index == 0 else '    '}{line}" for index, line in enumerate(lines))


def _flow(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_scalar, value))}]"
    return "{}" if isinstance(value, dict) else _scalar(value)


def _scalar(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str):
        return str(value)
    if _PLAIN.fullmatch(value) and plain_value(value) == value and not _YAML_1_1.fullmatch(value):
        return value
    return yaml.safe_dump(value, default_style='"', allow_unicode=True, width=float("inf")).rstrip("\n")
