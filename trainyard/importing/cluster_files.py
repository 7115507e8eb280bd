"""Convert cluster files of other tools into cluster files of Trainyard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import yaml

from trainyard import backends
from trainyard.backends.shared.taking import as_name
from trainyard.errors import Problem, RequestError
from trainyard.importing import clusters, command_line, launch_line, shell
from trainyard.importing.clusters import Clusters
from trainyard.importing.job import refuse_unreadable
from trainyard.spec import foreign

_KINDS = (
    "a RayCluster of KubeRay, a file of `ray up` on AWS, a ~/.cluster_config of Isaac Lab, or a "
    "command line of its "
    "launch.py"
)
_HEADER = "# Written from {file} by `trainyard cluster.import`, which lists what is left out.\n"


def convert(file: Path | None, words: Sequence[str] = ()) -> Clusters:
    """Convert a file or a command line into cluster files.

    Give either `file` or `words`. Notes name everything that is left out.
    Raises RequestError if no cluster is described.
    """
    if (file is None) == (not words):
        raise RequestError(
            "name one thing to import: a file, or a command line of launch.py behind `--`"
        )
    if file is None:
        return _of_line(words, source="a command line of launch.py")

    refuse_unreadable(file)
    if file.suffix in (".jinja", ".jinja2", ".j2"):
        hint = (
            "Import a file that was rendered from it. For Isaac Lab's template: trainyard "
            "cluster.import -- launch.py ..."
        )
        raise RequestError(f"{file} is a template of Jinja", hint=hint)

    try:
        text = file.read_text(encoding="utf-8")
        if file.suffix not in (".yaml", ".yml"):
            if found := clusters.read(text, name=file.name):
                return found

            commands = chain.from_iterable(shell.commands(text))
            lines = [each for each in commands if launch_line.is_one(each.words)]
            if len(lines) == 1:
                made = _of_line(lines[0].words, source=file.name)
                return replace(
                    made, notes=(*made.notes, *(f"not read: {text}" for text in lines[0].rest))
                )
            if lines:
                what = f"{file.name} has {len(lines)} command lines of launch.py"
                raise RequestError(what, hint="Import each of them by itself, behind `--`.")

        documents = list(foreign.unfolded(yaml.safe_load_all(text)))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise RequestError(f"{file} cannot be read: {error}") from error

    made = _of_documents(documents, source=file.name)
    if not made.texts:
        raise _no_cluster(file)

    return made


def _no_cluster(file: Path) -> RequestError:
    kind = foreign.kind_of(foreign.documents_of(file))
    if kind is None:
        return RequestError(
            f"{file} describes no cluster that can be imported", hint=f"It can import {_KINDS}."
        )
    return RequestError(
        f"{file} is {kind.name}, and describes no cluster that can be imported", hint=kind.remedy
    )


def of_context(
    environ: Mapping[str, str], *, context: str, prefix: str, namespace: str | None
) -> Clusters:
    """Convert other tools' RayClusters whose names begin with `prefix`.

    Asks the Kubernetes API of `context`; `namespace` None means all. Raises
    RequestError if no such cluster exists, PrerequisiteError and OutsideError
    if Kubernetes cannot be asked.
    """
    others = backends.others(environ, context=context, namespace=namespace)
    chosen = [other for other in others if other.name.startswith(prefix)]
    if not chosen:
        there = ", ".join(f"{other.namespace}/{other.name}" for other in others) or "none"
        named = f" whose name begins with {prefix}" if prefix else ""
        problem = Problem("there are", there)
        raise RequestError(
            f"context {context} has no RayCluster that another tool made{named}",
            problems=(problem,),
        )

    texts: dict[str, str] = {}
    names = [other.file["name"] for other in chosen]
    for other in chosen:
        file = dict(other.file)
        if names.count(file["name"]) > 1:
            file["name"] = as_name(f"{other.namespace}-{other.name}")
        if file["name"] in texts:
            raise RequestError(
                f"several clusters would be called {file['name']}: name one namespace (--namespace)"
            )
        texts[file["name"]] = yaml.safe_dump(file, sort_keys=False, width=100)

    return Clusters(texts, tuple(chain.from_iterable(other.notes for other in chosen)))


def _of_line(words: Sequence[str], *, source: str) -> Clusters:
    if not launch_line.is_one(words):
        if other := command_line.other_program(words):
            raise other
        hint = "One that runs a job: trainyard train.import -- ..."
        raise RequestError("this is no command line of Isaac Lab's launch.py", hint=hint)
    made = _of_documents(launch_line.clusters(words), source=source)
    return replace(made, notes=(*made.notes, *launch_line.NOTES))


def _of_documents(documents: Sequence[Any], *, source: str) -> Clusters:
    texts: dict[str, str] = {}
    notes: list[str] = []
    for document in documents:
        made = _converted(document)
        if made is None:
            notes.append(f"{_name_of(document)} is left out: it describes no cluster")
            continue

        content, said = made
        name = content["name"]
        if name in texts:
            raise RequestError(f"{source}: several clusters would be called {name}: rename one")

        texts[name] = _HEADER.format(file=source) + yaml.safe_dump(
            content, sort_keys=False, width=100
        )
        notes += [f"{name}: {note}" for note in said] if len(documents) > 1 else said

    return Clusters(texts, tuple(notes), next="trainyard cluster.plan -f")


def _converted(document: Any) -> tuple[dict[str, Any], list[str]] | None:
    if not isinstance(document, dict):
        return None
    try:
        return backends.imported(document)
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise RequestError(f"the file does not have its tool's format: {error!r}") from error


def _name_of(document: Any) -> str:
    if not isinstance(document, dict) or "kind" not in document:
        return "a document of it"
    return f"{document['kind']} {(document.get('metadata') or {}).get('name', '')}".strip()
