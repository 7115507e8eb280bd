"""With only Docker: a registry, an image, a cluster that trains from it, and nothing left."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.bed import images
from tests.bed.engine import BedEngine
from tests.real.yard import Yard
from trainyard.paths import shipped
from trainyard.seams.processes import free_ports

pytestmark = pytest.mark.core


@pytest.fixture
def site(fresh: Yard, engine: BedEngine) -> Yard:
    """Give a place with the shipped compose.yaml; name, registry and base are the bed's."""
    text = (shipped("clusters") / "compose.yaml").read_text()
    assert "\nname: compose " in text
    port = free_ports(1)[0]
    ours = f"""
registry: {{address: "127.0.0.1:{port}", insecure: true, image: "{images.REGISTRY}"}}
build: {{base: "{images.BASE}", network: host}}
"""
    file = fresh.home / "clusters" / f"{fresh.cluster}.yaml"
    file.parent.mkdir()
    file.write_text(text.replace("\nname: compose ", f"\nname: {fresh.cluster} ") + ours)
    fresh.environ.update(engine.environ())
    return fresh


def test_cartpole_trains_in_containers_from_the_pushed_image(site: Yard, engine: BedEngine) -> None:
    try:
        site.run("registry.up")
        site.run("image.build")
        pushed = site.json("image.push")
        site.run("cluster.up")
        verified = site.json("image.verify")
        assert verified["ok"]
        assert site.json("smoke.run")["ok"]

        site.run("train.dispatch", "cartpole")

        run = next(site.results.glob("cartpole-*"))
        assert json.loads((run / "run.json").read_text())["image"] == pushed["reference"]
        nodes = {task["attempts"][0]["node"] for task in site.json("train.status")["tasks"]}
        assert len(nodes) > 1
        assert {node["state"] for node in site.json("cluster.status")["nodes"]} == {"up"}
        assert len(site.json("cluster.status")["nodes"]) == 3
        containers = engine.docker(
            "ps", "--quiet", "--filter", f"name=trainyard-{site.cluster}-"
        ).stdout.split()
        run_by_nodes = engine.docker(
            "inspect", "--format", "{{.Config.Image}}", *containers
        ).stdout.split()
        assert run_by_nodes == [pushed["reference"]] * 3
        assert len(_left(site, engine)) == 7, (
            "three nodes, their network and volume, a registry and its volume"
        )
    finally:
        site.run("cluster.down", "--end-runs")
        site.run("registry.down", "--purge")

    assert _left(site, engine) == []
    assert not Path(site.state).exists()


def _left(site: Yard, engine: BedEngine) -> list[str]:
    """Return every container, network and volume of this cluster or registry."""
    address = site.json("registry.status")["address"]
    marks = (f"label=io.trainyard.cluster={site.cluster}", f"label=io.trainyard.registry={address}")
    kinds = (("ps", "--all"), ("network", "ls"), ("volume", "ls"))
    return [
        name
        for mark in marks
        for kind in kinds
        for name in engine.docker(*kind, "--quiet", "--filter", mark).stdout.split()
    ]
