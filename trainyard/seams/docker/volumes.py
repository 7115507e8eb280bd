"""Volumes and networks of a Docker engine: found again by label or name, made, removed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from docker.errors import NotFound

from trainyard.seams.docker.engine import Engine, refusals


@dataclass(frozen=True)
class Labelled:
    """A volume or a network: its name, and the labels that it was made with."""

    name: str
    labels: Mapping[str, str]


def volumes(engine: Engine, *labels: str) -> tuple[Labelled, ...]:
    """Return the volumes that carry every label ("key" or "key=value"), by name."""
    with refusals("list volumes"):
        return _by_name(engine.api.volumes(filters={"label": list(labels)})["Volumes"] or ())


def volume(engine: Engine, name: str) -> Labelled | None:
    with refusals(f"describe the volume {name}"), suppress(NotFound):
        return _labelled(engine.api.inspect_volume(name))
    return None


def create_volume(engine: Engine, name: str, *, labels: Mapping[str, str]) -> None:
    with refusals(f"make the volume {name}"):
        engine.api.create_volume(name, labels=dict(labels))


def remove_volume(engine: Engine, name: str) -> None:
    with refusals(f"remove the volume {name}"), suppress(NotFound):
        engine.api.remove_volume(name)


def networks(engine: Engine, *labels: str) -> tuple[Labelled, ...]:
    """Return the networks that carry every label ("key" or "key=value"), by name."""
    with refusals("list networks"):
        return _by_name(engine.api.networks(filters={"label": list(labels)}))


def remove_network(engine: Engine, name: str) -> None:
    """Remove a network that no container uses any more; no change if it is gone."""
    with refusals(f"remove the network {name}"), suppress(NotFound):
        engine.api.remove_network(name)


def _by_name(described: Iterable[Mapping[str, Any]]) -> tuple[Labelled, ...]:
    return tuple(sorted(map(_labelled, described), key=lambda labelled: labelled.name))


def _labelled(described: Mapping[str, Any]) -> Labelled:
    return Labelled(described["Name"], described["Labels"] or {})
