"""Cluster files of other tools, as cluster files of Trainyard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from trainyard import backends
from trainyard.errors import RequestError
from trainyard.importing import clusters
from trainyard.importing.clusters import Clusters
from trainyard.importing.job import refuse_unreadable

_KINDS = "a RayCluster of KubeRay, a file of `ray up` on AWS, or a ~/.cluster_config of Isaac Lab"
_HEADER = "# Written by `trainyard cluster.import` from {file}; it says what has no place here.\n"


def convert(file: Path) -> Clusters:
    """Return the cluster files that a file describes, and notes about all of it that they leave out.

    Raises RequestError where it describes none.
    """
    refuse_unreadable(file)
    try:
        text = file.read_text(encoding="utf-8")
        if file.suffix not in (".yaml", ".yml") and (found := clusters.read(text, name=file.name)):
            return found
        documents = [document for document in yaml.safe_load_all(text) if document is not None]
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise RequestError(f"{file} cannot be read: {error}") from error

    texts: dict[str, str] = {}
    notes: list[str] = []
    for document in documents:
        made = _converted(document)
        if made is None:
            notes.append(f"{_name_of(document)} is left out: no cluster")
            continue
        content, said = made
        name = content["name"]
        if name in texts:
            raise RequestError(f"{file.name}: several clusters would be called {name}: rename one")
        texts[name] = _HEADER.format(file=file.name) + yaml.safe_dump(content, sort_keys=False, width=100)
        notes += [f"{name}: {note}" for note in said] if len(documents) > 1 else said
    if not texts:
        raise RequestError(f"{file} describes no cluster that can be imported", hint=f"What is: {_KINDS}.")
    return Clusters(texts, tuple(notes), next="trainyard cluster.plan -f")


def _converted(document: Any) -> tuple[dict[str, Any], list[str]] | None:
    if not isinstance(document, dict):
        return None
    try:
        return backends.imported(document)
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise RequestError(f"the file is not as its tool takes it: {error!r}") from error


def _name_of(document: Any) -> str:
    if not isinstance(document, dict) or "kind" not in document:
        return "a document of it"
    return f"{document['kind']} {(document.get('metadata') or {}).get('name', '')}".strip()
