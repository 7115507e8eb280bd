"""Make a real Docker engine trust a registry that is not on loopback: settings, reload, a pull."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.bed.engine import BedEngine
from tests.real.registries import address, place_to_work
from tests.real.yard import Yard
from trainyard.seams import processes

KEPT = {
    "log-level": "info",
    "runtimes": {"nvidia": {"path": "nvidia-container-runtime", "runtimeArgs": []}},
    "insecure-registries": ["192.0.2.9:5000"],
    "max-concurrent-uploads": 3,
}


@pytest.fixture
def plain(tmp_path: Path, engine: BedEngine) -> Iterator[Yard]:
    """Give a registry without TLS on an address that Docker does not trust by default."""
    where = f"{engine.bridge_ip}:{processes.free_ports(1)[0]}"
    with place_to_work(tmp_path / "work", engine, address=where, insecure=True) as yard:
        yield yard


@pytest.fixture(scope="module")
def registry(engine: BedEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    """Give a registry with TLS and a password on such an address; it does not run yet."""
    where = f"{engine.bridge_ip}:{processes.free_ports(1)[0]}"
    login = {"username": "ann", "password_env": "REGISTRY_PASSWORD"}
    with place_to_work(tmp_path_factory.mktemp("work"), engine, address=where, **login) as yard:
        yield yard


@pytest.fixture
def guarded(registry: Yard) -> Iterator[Yard]:
    """Give that registry, running, to a Docker that does not trust it."""
    registry.run("registry.up")
    where = address(registry)
    yield registry
    # dockerd looks for CAs only in this directory of the machine.
    shutil.rmtree(f"/etc/docker/certs.d/{where}", ignore_errors=True)
    with suppress(OSError):
        Path("/etc/docker/certs.d").rmdir()


def on(yard: Yard, engine: BedEngine) -> Yard:
    """Return the same place to work, with another Docker engine."""
    return Yard(yard.home, environ={**yard.environ, **engine.environ()})


def backups(engine: BedEngine) -> list[str]:
    return [path.read_text() for path in engine.config.parent.glob("daemon.json.2*")]


def test_plain_http_is_added_to_daemon_json_and_read_without_a_restart(
    plain: Yard, private_engine: BedEngine
) -> None:
    plain.run("registry.up")
    where = address(plain)
    before = json.dumps(KEPT, indent=2) + "\n"
    private_engine.config.write_text(before)
    private_engine.config.chmod(0o640)
    pid = private_engine.pid
    yard = on(plain, private_engine)

    assert [step["state"] for step in yard.json("registry.trust", "--dry")["steps"]] == [
        "would",
        "after",
        "after",
    ]

    assert private_engine.config.read_text() == before
    trusted = yard.run("registry.trust")
    assert trusted.stdout == f"this host's Docker pulls from {where}\n"

    merged = {**KEPT, "insecure-registries": ["192.0.2.9:5000", where]}
    assert private_engine.config.read_text() == json.dumps(merged, indent=2) + "\n"
    assert private_engine.config.stat().st_mode & 0o777 == 0o640
    assert backups(private_engine) == [before]
    assert private_engine.pid == pid
    assert private_engine.docker("pull", f"{where}/trainyard/probe:1").returncode == 0

    changed = [step["title"] for step in yard.json("registry.trust")["steps"] if step["changed"]]
    assert changed == ["A pull proves it"]
    assert backups(private_engine) == [before]
    private_engine.restart()
    assert private_engine.docker("pull", f"{where}/trainyard/probe:1").returncode == 0


def test_an_unknown_ca_of_a_registry_is_trusted_only_if_its_file_is_given(
    guarded: Yard, tmp_path: Path
) -> None:
    elsewhere = Yard(guarded.home, environ={**guarded.environ, "XDG_STATE_HOME": str(tmp_path)})
    refused = elsewhere.run("registry.trust", expect=6)
    assert "error: Docker does not trust the CA of registry" in refused.stderr
    assert "registry.ca_file" in refused.stderr
    copied = elsewhere.run("registry.trust", "--set", f"registry.ca_file={ca_of(guarded)}")
    assert "Docker pulls from" in copied.stdout


def test_another_machine_continues_with_the_registry_s_certificate(
    guarded: Yard, tmp_path: Path
) -> None:
    elsewhere = Yard(guarded.home, environ={**guarded.environ, "XDG_STATE_HOME": str(tmp_path)})
    changed = [step["title"] for step in elsewhere.json("registry.up")["steps"] if step["changed"]]
    assert changed == ["Make its CA"]
    assert ca_of(elsewhere).read_bytes() == ca_of(guarded).read_bytes()
    elsewhere.environ["REGISTRY_PASSWORD"] = guarded.environ["REGISTRY_PASSWORD"] = "second secret"
    elsewhere.run("registry.up")
    assert guarded.json("registry.status")["state"] == "up"


def test_the_ca_of_a_registry_with_tls_is_given_to_docker(guarded: Yard, engine: BedEngine) -> None:
    where = address(guarded)
    refused = engine.docker("pull", f"{where}/trainyard/probe:1", check=False)
    assert "certificate signed by unknown authority" in refused.stderr
    assert guarded.json("registry.status")["trusted"] is False
    trusted = guarded.run("registry.trust")
    assert trusted.stdout == f"this host's Docker pulls from {where}\n"
    assert (
        Path(f"/etc/docker/certs.d/{where}/trainyard-ca.crt").read_bytes()
        == ca_of(guarded).read_bytes()
    )
    assert guarded.json("registry.status")["trusted"] is True
    assert engine.docker("images", "--quiet", f"{where}/trainyard/probe").stdout == ""
    gone = guarded.run("registry.down", "--purge").stdout.splitlines()
    assert gone[0] == f"registry {where} is gone with what it held"
    assert (
        f"Docker here still trusts its CA; to remove that: sudo rm -r /etc/docker/certs.d/{where}"
        in gone
    )


def ca_of(yard: Yard) -> Path:
    return Path(yard.json("registry.status")["ca_file"])
