"""A resolved file as YAML or JSON, with marked defaults, without secrets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, get_args

import yaml
from pydantic import BaseModel

from trainyard.spec.cluster import Backend, ClusterSpec
from trainyard.spec.job import JobSpec
from trainyard.spec.secrets import HIDDEN, command_without_secrets, hidden, without_secrets
from trainyard.spec.yaml_source import FLOAT, KeyPath, compose, nearest

MARK = "  # default"
ENVIRONMENTS = ("env", "env_vars")
CHART_VALUES = ("kuberay", "operator", "values")
# Line ends of YAML 1.1 (b-char) other than line feed and carriage return.
_LINE_ENDS = frozenset("\x85\u2028\u2029")


class _Dumper(yaml.SafeDumper):
    """Quotes text that YAML 1.1 or 1.2 would read as another type."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _represent_list(dumper: yaml.SafeDumper, entries: list[Any]) -> yaml.Node:
    is_flat = not any(isinstance(entry, (dict, list)) for entry in entries)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", entries, flow_style=is_flat)


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    style = None
    if not _LINE_ENDS.isdisjoint(text):
        # YAML reads these as line ends, unless they are escaped.
        style = '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(list, _represent_list)
_Dumper.add_representer(str, _represent_text)
_Dumper.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(f"^(?:{FLOAT.pattern})$"), list("-+.0123456789")
)


def as_json(spec: ClusterSpec | JobSpec) -> dict[str, Any]:
    """Return the resolved file as JSON; `defaults` lists the keys left out."""
    document = {}
    for key, value in _hidden(spec.model_dump(mode="json")).items():
        if value is not None:
            document[key] = value

    paths = _defaults(spec, (), inherited=False)
    document["defaults"] = sorted(".".join(map(str, path)) for path in paths)
    return document


def as_yaml(spec: ClusterSpec | JobSpec) -> str:
    """Return the resolved file as YAML, with defaults marked.

    Sections of unused backends are left out. Unless a secret was hidden, the
    rest loads unchanged.
    """
    values = _hidden(spec.model_dump(mode="json", exclude_none=True))
    head = ""
    if isinstance(spec, ClusterSpec):
        for backend in get_args(Backend):
            if backend != spec.backend:
                values.pop(backend, None)
    else:
        head = f"# job: {values.pop('name')}\n"
        _leave_out_unwritten_resources(spec, values)

    text = written(values)
    lines = text.split("\n")
    places = compose(text, origin="").places
    for path in _defaults(spec, (), inherited=False):
        known = nearest(path, places)
        line = int(places[known].rpartition(":")[2]) - 1
        # The YAML has {} for a section in which no key was written.
        if known == path or lines[line].endswith("{}"):
            lines[line] += MARK

    return head + "\n".join(lines)


def _leave_out_unwritten_resources(job: JobSpec, values: dict[str, Any]) -> None:
    """Remove defaults of a task's resources.

    Loaded again, they would override the job's resources.
    """
    for index, task in enumerate(job.tasks or ()):
        if task.resources is not None:
            dumped = values["tasks"][index]["resources"]
            for key in dumped.keys() - task.resources.model_fields_set:
                del dumped[key]


def written(values: Any) -> str:
    """Return values as YAML that Trainyard and other readers read alike."""
    text: str = yaml.dump(
        values, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=float("inf")
    )
    return text


def _hidden(value: Any, path: KeyPath = ()) -> Any:
    """Hide secrets, recognized by name or form, and all values for Helm."""
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
    """Yield the path of every default, also in sections left out."""
    if isinstance(value, BaseModel):
        for name in type(value).model_fields:
            is_default = inherited or name not in value.model_fields_set
            yield from _defaults(getattr(value, name), (*path, name), inherited=is_default)
    elif isinstance(value, tuple) and value and isinstance(value[0], BaseModel):
        for index, entry in enumerate(value):
            yield from _defaults(entry, (*path, index), inherited=inherited)
    elif inherited:
        yield path
