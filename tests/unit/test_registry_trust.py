"""Docker's daemon.json gets one more registry, and keeps everything else; which file it is."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, cast

import pytest
from docker.errors import APIError

from trainyard.errors import PrerequisiteError
from trainyard.registry import trust
from trainyard.registry.target import Target
from trainyard.seams.docker import daemon as docker_daemon
from trainyard.seams.docker.daemon import Daemon
from trainyard.seams.docker.engine import Engine
from trainyard.spec.docker import Registry

NOW = datetime(2026, 11, 21, 15, 4, 5, tzinfo=timezone.utc)
LAB = "192.0.2.10:32000"


class FakeApi:
    """An engine that expects TLS of a registry without it."""

    def inspect_distribution(self, reference: str, **_: object) -> None:
        assert reference.startswith(LAB)
        raise APIError("http: server gave HTTP response to HTTPS client")


def merged(path: Path, text: str) -> str:
    path.write_text(text)
    trust.add(path, LAB, now=NOW)
    return path.read_text()


@pytest.mark.parametrize("text", ["", "\n", "{}", "{}\n"])
def test_settings_that_say_nothing_get_the_registry(tmp_path: Path, text: str) -> None:
    assert (
        merged(tmp_path / "daemon.json", text)
        == '{\n  "insecure-registries": [\n    "192.0.2.10:32000"\n  ]\n}\n'
    )


@pytest.mark.parametrize(
    "text", ['{\n  "debug": true,\n}', "[1]", '{"insecure-registries": "192.0.2.1"}']
)
def test_settings_that_docker_cannot_read_are_refused_and_stay_as_they_are(
    tmp_path: Path, text: str
) -> None:
    path = tmp_path / "daemon.json"
    with pytest.raises(
        PrerequisiteError, match="Docker's settings file is not JSON that Docker accepts: "
    ) as caught:
        merged(path, text)
    assert caught.value.where == str(path)
    assert [file.name for file in tmp_path.iterdir()] == ["daemon.json"]
    assert path.read_text() == text


def test_a_settings_file_that_is_not_there_is_made_without_a_copy(tmp_path: Path) -> None:
    path = tmp_path / "docker" / "daemon.json"
    trust.add(path, LAB, now=NOW)
    assert json.loads(path.read_text()) == {"insecure-registries": [LAB]}
    assert list(path.parent.iterdir()) == [path]
    with pytest.raises(PrerequisiteError) as caught:
        trust.add(path / "inside", LAB, now=NOW)
    assert caught.value.hint == trust.AS_ROOT


@pytest.mark.parametrize("docker_host", ["ssh://ops@192.0.2.7", "unix:///none.sock"])
def test_an_engine_whose_files_are_not_here_is_not_changed_from_here(docker_host: str) -> None:
    engine = Engine(docker_host, cast("Any", FakeApi()), {})
    with pytest.raises(PrerequisiteError) as caught:
        trust.trust_steps(Target(Registry(address=LAB, insecure=True), engine, {}))
    assert f'add "{LAB}" to "insecure-registries"' in (caught.value.hint or "")


def test_a_daemon_reads_the_file_that_it_was_given_last() -> None:
    assert Daemon(1, ("--config-file", "/a.json", "--config-file=/b.json")).settings == Path(
        "/b.json"
    )
    assert Daemon(1, ("-H", "fd://")).settings == Path("/etc/docker/daemon.json")


def test_a_daemon_with_the_setting_as_a_flag_keeps_it_out_of_the_file() -> None:
    with pytest.raises(PrerequisiteError) as caught:
        trust.refuse_flag(Daemon(812, ("-H", "fd://", "--insecure-registry=192.0.2.9:5000")), LAB)
    assert caught.value.where == "dockerd (pid 812)"
    assert "--insecure-registry=192.0.2.10:32000" in str(caught.value.hint)
    trust.refuse_flag(Daemon(812, ("-H", "fd://")), LAB)


def test_trust_left_in_docker_is_reported_with_its_removal(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings = tmp_path / "daemon.json"
    daemon = Daemon(1, ("--config-file", str(settings)))
    monkeypatch.setattr(docker_daemon, "CERTIFICATES", tmp_path / "certs.d")
    monkeypatch.setattr(docker_daemon, "find", lambda _: daemon)
    lab = Target(Registry(address=LAB), Engine("unix:///docker.sock", cast("Any", None), {}), {})
    assert trust.kept_here(lab) == ()
    (tmp_path / "certs.d" / LAB).mkdir(parents=True)
    (tmp_path / "certs.d" / LAB / "trainyard-ca.crt").touch()
    trust.add(settings, LAB, now=NOW)

    assert trust.kept_here(lab) == (
        f"Docker here still trusts its CA; to remove that: sudo rm -r {tmp_path}/certs.d/{LAB}",
        f"Docker here still has the registry's address in insecure-registries of {settings}; "
        "remove it there, then: sudo systemctl reload docker "
        f"(copies: {settings}.DATE-TIME)",
    )
