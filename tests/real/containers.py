"""Docker's objects of a cluster of containers."""

from __future__ import annotations

from tests.bed.engine import BedEngine


def left_of(engine: BedEngine, name: str) -> list[str]:
    """Return every container, network and volume of a cluster."""
    label = ("--filter", f"label=io.trainyard.cluster={name}")
    found = [
        *engine.docker("ps", "-a", *label, "--format", "{{.Names}}").stdout.split(),
        *engine.docker("network", "ls", *label, "--format", "{{.Name}}").stdout.split(),
        *engine.docker("volume", "ls", *label, "--format", "{{.Name}}").stdout.split(),
    ]
    return sorted(found)
