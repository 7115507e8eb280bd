"""A registry of the user's own, on a real engine: started, filled, listed, removed."""

from __future__ import annotations

import json
import socket
import ssl
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from tests.bed.engine import BedEngine
from tests.real.registries import address, place_to_work
from tests.real.yard import Yard
from trainyard.seams.docker import images as docker_images
from trainyard.seams.docker.engine import connect


def push_tiny(engine: BedEngine, reference: str) -> None:
    with connect({}, engine.address) as there:
        docker_images.make_tiny(there, reference)
    engine.docker("push", reference)
    engine.docker("rmi", reference)


def repositories(yard: Yard) -> dict[str, list[str]]:
    found = yard.json("registry.status")["repositories"]
    return {one["name"]: [tag["name"] for tag in one["tags"]] for one in found}


def of_registry(engine: BedEngine, kind: str, where: str) -> list[str]:
    """Return the names of containers or volumes labelled with a registry's address."""
    all_too = ["--all"] if kind == "container" else []
    names = "{{.Names}}" if kind == "container" else "{{.Name}}"
    label = f"label=io.trainyard.registry={where}"
    return engine.docker(kind, "ls", *all_too, "--filter", label, "--format", names).stdout.split()


@pytest.fixture(scope="module")
def plain(engine: BedEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    with place_to_work(tmp_path_factory.mktemp("plain"), engine, insecure=True) as yard:
        yield yard


@pytest.fixture(scope="module")
def guarded(engine: BedEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    login = {"username": "ann", "password_env": "REGISTRY_PASSWORD"}
    with place_to_work(tmp_path_factory.mktemp("guarded"), engine, **login) as yard:
        yield yard


@pytest.mark.core
def test_a_pushed_image_is_listed_and_kept_until_it_is_purged(
    plain: Yard, engine: BedEngine
) -> None:
    planned = plain.json("registry.up", "--dry")
    assert [step["state"] for step in planned["steps"]] == ["already", "already", "would", "after"]
    assert plain.json("registry.status")["state"] == "down"
    up = plain.run("registry.up")
    where = address(plain)
    name = f"trainyard-registry-{where.replace(':', '-')}"
    assert (
        up.stdout
        == f"registry {where} is up: plain HTTP, no login; its images are in the volume {name}\n"
    )
    assert up.stderr.splitlines()[-1] == "next: trainyard image.push"
    (described,) = json.loads(engine.docker("inspect", name).stdout)
    published = [
        bound for port in described["NetworkSettings"]["Ports"].values() for bound in port or ()
    ]
    assert {bound["HostIp"] for bound in published} == {"127.0.0.1"}, (
        "nobody else reaches it: it asks for no login"
    )

    push_tiny(engine, f"{where}/team/tiny:1")
    found = plain.json("registry.status")
    assert found["state"] == "up"
    (repository,) = found["repositories"]
    assert (repository["name"], [tag["name"] for tag in repository["tags"]]) == ("team/tiny", ["1"])
    assert 0 < found["size"] == repository["size"] < 10_000 < found["disk_free"]

    again = plain.json("registry.up")
    assert not any(step["changed"] for step in again["steps"])

    down = plain.run("registry.down")
    assert down.stdout.splitlines() == [
        f"registry {where} is gone; its images are kept in the volume {name}",
        "to remove them too: trainyard registry.down --purge",
    ]
    assert of_registry(engine, "container", where) == []
    plain.run("registry.up")
    assert repositories(plain) == {"team/tiny": ["1"]}

    plain.run("registry.down", "--purge")
    assert of_registry(engine, "container", where) == of_registry(engine, "volume", where) == []
    assert list((plain.home / "state").rglob("*127*")) == []


def test_tls_and_a_password_are_made_and_the_ca_outlives_a_new_password(
    guarded: Yard, engine: BedEngine
) -> None:
    guarded.run("registry.up")
    where = address(guarded)
    ca = Path(guarded.json("registry.status")["ca_file"])
    before = ca.read_bytes()
    assert stat.S_IMODE((ca.parent / "server.key").stat().st_mode) == 0o600
    assert httpx.get(f"https://{where}/v2/", verify=_trusting(ca)).status_code == 401
    inspected = engine.docker("inspect", *of_registry(engine, "container", where)).stdout
    assert "first secret" not in inspected

    guarded.environ["REGISTRY_PASSWORD"] = "second secret"
    refused = guarded.run("registry.status", expect=6)
    assert f"error: registry {where} refuses the login" in refused.stderr
    changed = [step["title"] for step in guarded.json("registry.up")["steps"] if step["changed"]]
    assert changed == [f"Run trainyard-registry-{where.replace(':', '-')}"]
    assert guarded.json("registry.status")["state"] == "up"
    assert ca.read_bytes() == before


def test_a_taken_port_is_refused_and_its_container_named(plain: Yard, engine: BedEngine) -> None:
    where = address(plain)
    port = where.split(":")[1]
    with closing(socket.create_server(("127.0.0.1", int(port)))):
        refused = plain.run("registry.up", expect=3)

    assert f"error: port {port} of 127.0.0.1 is taken by another program\n" in refused.stderr
    engine.docker(
        "run",
        "--detach",
        "--name",
        "in-the-way",
        "--publish",
        f"{port}:5000",
        "trainyard-bed/registry:1",
    )

    try:
        refused = plain.run("registry.up", expect=3)
    finally:
        engine.docker("rm", "--force", "--volumes", "in-the-way")

    assert "taken by the container in-the-way (trainyard-bed/registry:1)\n  -> " in refused.stderr
    assert "docker rm -f NAME" in refused.stderr
    assert of_registry(engine, "container", where) == []


def _trusting(ca: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(ca))
