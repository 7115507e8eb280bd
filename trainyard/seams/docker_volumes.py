"""Volumes and networks of a Docker engine: found again by label or name, made, removed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from docker.errors import NotFound

from trainyard.seams.docker_engine import Engine, refusals


@dataclass(frozen=True)
class Labelled:
    """A volume or a network: its name, and the labels that it was made with."""

    name: str
    labels: Mapping[str, str]


def volumes(engine: Engine, *labels: str) -> tuple[Labelled, ...]:
    """Return the volumes that carry every label ("key" or "key=value"), by name."""
    with refusals("list volumes"):
        listed = engine.api.volumes(filters={"label": list(labels)})["Volumes"] or ()
    return _by_name(Labelled(one["Name"], one["Labels"] or {}) for one in listed)


def volume(engine: Engine, name: str) -> Labelled | None:
    """Return the volume of this name, or None if there is none."""
    with refusals(f"describe the volume {name}"), suppress(NotFound):
        described = engine.api.inspect_volume(name)
        return Labelled(described["Name"], described["Labels"] or {})
    return None


def create_volume(engine: Engine, name: str, *, labels: Mapping[str, str]) -> None:
    """Make a volume; no change if it is there."""
    with refusals(f"make the volume {name}"):
        engine.api.create_volume(name, labels=dict(labels))


def remove_volume(engine: Engine, name: str) -> None:
    """Remove a volume and what is in it; no change if it is gone."""
    with refusals(f"remove the volume {name}"), suppress(NotFound):
        engine.api.remove_volume(name)


def networks(engine: Engine, *labels: str) -> tuple[Labelled, ...]:
    """Return the networks that carry every label ("key" or "key=value"), by name."""
    with refusals("list networks"):
        listed = engine.api.networks(filters={"label": list(labels)})
    return _by_name(Labelled(one["Name"], one["Labels"] or {}) for one in listed)


def network(engine: Engine, name: str) -> Labelled | None:
    """Return the network of this name, or None if there is none."""
    with refusals(f"describe the network {name}"), suppress(NotFound):
        described = engine.api.inspect_network(name)
        return Labelled(described["Name"], described["Labels"] or {})
    return None


def remove_network(engine: Engine, name: str) -> None:
    """Remove a network that no container uses any more; no change if it is gone."""
    with refusals(f"remove the network {name}"), suppress(NotFound):
        engine.api.remove_network(name)


def _by_name(found: Iterable[Labelled]) -> tuple[Labelled, ...]:
    return tuple(sorted(found, key=lambda one: one.name))
