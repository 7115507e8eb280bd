"""A resolved file as people and programs read it: defaults marked, secrets hidden, and good to be
loaded again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, get_args

import yaml
from pydantic import BaseModel

from trainyard.spec.cluster import Backend, ClusterSpec
from trainyard.spec.job import JobSpec
from trainyard.spec.secrets import HIDDEN, command_without_secrets, hidden, without_secrets
from trainyard.spec.yaml_source import FLOAT, KeyPath, compose

MARK = "  # default"
ENVIRONMENTS = ("env", "env_vars")
CHART_VALUES = ("kuberay", "operator", "values")
# Beside line feed and carriage return (YAML 1.1, b-char).
_LINE_ENDS = frozenset("\x85\u2028\u2029")


class _Dumper(yaml.SafeDumper):
    """Writes text in quotes that YAML 1.1 or 1.2 would take for something else, and short lists on
    a line.
    """

    def ignore_aliases(self, data: object) -> bool:
        return True


def _represent_list(dumper: yaml.SafeDumper, entries: list[Any]) -> yaml.Node:
    is_flat = not any(isinstance(entry, (dict, list)) for entry in entries)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", entries, flow_style=is_flat)


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    # YAML takes these for the end of a line, unless they are written as escapes.
    style = '"' if not _LINE_ENDS.isdisjoint(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(list, _represent_list)
_Dumper.add_representer(str, _represent_text)
_Dumper.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(f"^(?:{FLOAT.pattern})$"), list("-+.0123456789")
)


def as_json(spec: ClusterSpec | JobSpec) -> dict[str, Any]:
    """Return the resolved file as one JSON document: its values, and under `defaults` the paths
    nobody wrote.
    """
    dotted = sorted(
        ".".join(str(part) for part in path) for path in _defaults(spec, (), inherited=False)
    )
    values = _hidden(spec.model_dump(mode="json"))
    return {
        **{key: value for key, value in values.items() if value is not None},
        "defaults": dotted,
    }


def as_yaml(spec: ClusterSpec | JobSpec) -> str:
    """Return the resolved file as YAML, every default marked; it loads again to the same spec.

    Of a cluster's backends only its own has a section.
    """
    values = _hidden(spec.model_dump(mode="json", exclude_none=True))
    if isinstance(spec, ClusterSpec):
        values = {
            key: value
            for key, value in values.items()
            if key not in {*get_args(Backend)} - {spec.backend}
        }

    if isinstance(spec, JobSpec):
        head = f"# job: {values.pop('name')}\n"
    else:
        head = ""

    text = written(values)
    lines = text.split("\n")
    places = compose(text, origin="").places

    for path in _defaults(spec, (), inherited=False):
        nearest = next(
            path[:length] for length in range(len(path), -1, -1) if path[:length] in places
        )
        line = int(places[nearest].rpartition(":")[2]) - 1
        # A section of which nothing was written stands there as {}.
        if nearest == path or lines[line].endswith("{}"):
            lines[line] += MARK

    return head + "\n".join(lines)


def written(values: Any) -> str:
    """Return a file's values as YAML that our own reader, and others, read as the same values."""
    text: str = yaml.dump(
        values, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=float("inf")
    )
    return text


def _hidden(value: Any, path: KeyPath = ()) -> Any:
    """Return values without secrets: by the names of variables and flags, by their form, and all
    given to Helm.
    """
    if isinstance(value, str):
        return without_secrets(value)
    if isinstance(value, list):
        if path and path[-1] == "command":
            return command_without_secrets(value)
        return [_hidden(entry, (*path, index)) for index, entry in enumerate(value)]
    if not isinstance(value, dict):
        return value
    if path == CHART_VALUES:
        return dict.fromkeys(value, HIDDEN)
    if path and path[-1] in ENVIRONMENTS:
        return hidden(value)
    return {name: _hidden(inner, (*path, name)) for name, inner in value.items()}


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
