"""Pydantic's errors in plain words, each with its place, path and value."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from trainyard.errors import Problem
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.fields import NOTHING, Complaint, ComplaintsError
from trainyard.spec.job import RAY_KEYS, JobSpec, RuntimeEnv
from trainyard.spec.secrets import is_likely_name, without_secrets
from trainyard.spec.units import NoSizeError, size_of_others
from trainyard.spec.yaml_source import KeyPath, Source, located, nearest
from trainyard.wording import did_you_mean

LONGEST_VALUE = 60

# Messages for pydantic's error types; the braces are filled from the error's context.
_WORDS: Mapping[str, str] = {
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "string_type": "must be text",
    "tuple_type": "must be a list",
    "dict_type": "must be a mapping of keys to values",
    "model_type": "must be a mapping of keys to values",
    "greater_than": "must be above {gt:g}",
    "greater_than_equal": "must be at least {ge:g}",
    "less_than_equal": "must be at most {le:g}",
    "string_too_short": "must not be empty",
}


# Keys of Docker Compose and Kubernetes in a cluster file, and their replacements here.
_FOREIGN_KEYS: Mapping[str, str] = {
    "volumes": "directories of a Docker host are compose.mounts, volumes of pods kuberay.volumes",
    "ports": "only the dashboard is published, at compose.dashboard_port",
    "restart": "nodes that end are always started again",
    "environment": "variables are `env`",
    "replicas": "the number of nodes is `count`",
    "minReplicas": "the fewest nodes are `min`",
    "maxReplicas": "the most nodes are `max`",
    "resources": "they are `cpus`, `memory` and `gpus`",
    "requests": "they are `kuberay.requests`, and of one group `kuberay.groups.NAME.requests`",
    "rayStartParams": "they are `ray_start`",
}
_FEWER_CPUS = "; on Kubernetes, kuberay.requests asks the scheduler for less than whole CPUs"


def problems_of(
    error: ValidationError, model: type[BaseModel], source: Source
) -> tuple[Problem, ...]:
    """Translate a pydantic error into problems, in the file's order."""
    complaints: list[Complaint] = []
    for details in error.errors(include_url=False):
        complaints += _complaints(dict(details), model)
    order = {path: position for position, path in enumerate(source.places)}
    complaints.sort(key=lambda complaint: order[nearest(complaint.path, source.places)])

    problems = []
    for complaint in complaints:
        if complaint.path not in source.broken:
            problems.append(Problem(where(complaint.path, source), _sentence(complaint)))
    return tuple(problems)


def where(path: KeyPath, source: Source) -> str:
    """Return a path and its place: FILE:LINE, or the flag that set it.

    An unwritten path has the place of the nearest section around it.
    """
    known = nearest(path, source.places)
    place = source.places[known]
    is_flag = place.startswith("--")
    if is_flag and known == path and place.count(".") + 1 == len(path):
        return place
    return located(place, path)


def value_text(value: object) -> str:
    """Return a value as short JSON, without secrets."""
    text = without_secrets(json.dumps(value, ensure_ascii=False, default=str))
    text = "".join(
        character if character.isprintable() else f"\\u{ord(character):04x}" for character in text
    )
    if len(text) <= LONGEST_VALUE:
        return text
    return f"{text[:LONGEST_VALUE]}..."


def _complaints(details: dict[str, Any], model: type[BaseModel]) -> Iterator[Complaint]:
    """Yield an error's complaints; a rule's error may have several."""
    path: KeyPath = tuple(part for part in details["loc"] if part != "[key]")
    reason = details.get("ctx", {}).get("error")
    if isinstance(reason, ComplaintsError):
        for inner in reason.complaints:
            yield replace(inner, path=(*path, *inner.path))
    elif details["type"] == "missing":
        yield Complaint(path, "is missing")
    elif details["type"] == "extra_forbidden":
        yield _unknown_key(model, path)
    else:
        yield Complaint(path, _words(details), details["input"], _suggestion(details))


def _words(details: dict[str, Any]) -> str:
    kind = details["type"]
    context = details.get("ctx", {})
    if kind == "value_error":
        return str(context["error"])
    if kind == "literal_error":
        return f"must be one of: {', '.join(_choices(details))}"
    return _WORDS.get(kind, str(details["msg"])).format(**context)


def _suggestion(details: dict[str, Any]) -> str:
    kind = details["type"]
    value = details["input"]
    if kind == "literal_error":
        if isinstance(value, str):
            return did_you_mean(value, _choices(details))
        return ""
    if kind == "int_from_float" and details["loc"][-1] == "cpus":
        return (
            "; on Kubernetes the scheduler may be asked for less: kuberay: {requests: "
            f"{{cpus: {value}}}}}"
        )

    if kind == "string_type" and isinstance(value, int | float):
        # The spelling of a float is lost, and a program may distinguish 1e3 from 1000.0.
        if isinstance(value, float):
            return "; write it in quotes"
        return f"; write it in quotes: {json.dumps(value_text(value))}"

    if kind == "string_type" and isinstance(value, dict) and list(value.values()) == [None]:
        # A placeholder without quotes is YAML's short form of a mapping.
        return f'; write "{{{next(iter(value))}}}" in quotes'

    return _native_form(details)


def _native_form(details: dict[str, Any]) -> str:
    """Suggest Trainyard's form of a value for Docker or Kubernetes; else ""."""
    kind = details["type"]
    value = details["input"]
    key = ""
    if details["loc"]:
        key = details["loc"][-1]

    size = None
    if isinstance(details.get("ctx", {}).get("error"), NoSizeError):
        size = size_of_others(value)
    if size:
        return f"; write {size}"
    if key == "cpus" and (isinstance(value, float) or re.fullmatch(r"\d+m", str(value))):
        return _FEWER_CPUS
    if kind == "model_type" and key == "registry" and isinstance(value, str):
        return f"; write {{address: {json.dumps(value)}}}"
    return ""


def _choices(details: dict[str, Any]) -> list[str]:
    """Split a Literal's choices from pydantic: `'local' or 'existing'`."""
    return re.findall(r"'([^']*)'", details["ctx"]["expected"])


def _sentence(complaint: Complaint) -> str:
    is_secret = any(is_likely_name(str(part)) for part in complaint.path)
    if complaint.value is None:
        return f"{complaint.message}, got nothing{complaint.suggestion}"
    if complaint.value is NOTHING or is_secret:
        return complaint.message + complaint.suggestion
    given = value_text(complaint.value)
    return f"{complaint.message}, got {given}{complaint.suggestion}"


def _unknown_key(model: type[BaseModel], path: KeyPath) -> Complaint:
    key = str(path[-1])
    section = _model_at(model, path[:-1])
    if section is RuntimeEnv and key in RAY_KEYS:
        return Complaint(path, f"is a key of Ray's, not of a job file: {RAY_KEYS[key]}")
    if model is ClusterSpec and key in _FOREIGN_KEYS:
        return Complaint(path, f"is not a known key: {_FOREIGN_KEYS[key]}")

    known: list[str] = []
    if section:
        known = list(section.model_fields)
    if section is JobSpec:
        known.remove("name")

    suggestion = did_you_mean(key, known)
    if known and not suggestion:
        suggestion = f"; known: {', '.join(known)}"
    return Complaint(path, "is not a known key", suggestion=suggestion)


def _model_at(model: type[BaseModel], path: KeyPath) -> type[BaseModel] | None:
    section: type[BaseModel] | None = model
    in_mapping = False
    for part in path:
        if in_mapping:
            in_mapping = False
        elif isinstance(part, str) and section is not None:
            annotation = None
            if part in section.model_fields:
                annotation = section.model_fields[part].annotation
            section = _model_in(annotation)
            in_mapping = _is_mapping(annotation)
    return section


def _model_in(annotation: object) -> type[BaseModel] | None:
    """Return an annotation's first model, as in `tuple[Model, ...] | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in get_args(annotation):
        model = _model_in(argument)
        if model is not None:
            return model
    return None


def _is_mapping(annotation: object) -> bool:
    return get_origin(annotation) is dict or any(map(_is_mapping, get_args(annotation)))
