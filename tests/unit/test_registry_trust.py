"""Docker's daemon.json gets one more registry, and keeps everything else; which file it is."""

from __future__ import annotations

import json
import os
import stat
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, cast

import pytest

from trainyard.errors import PrerequisiteError, RequestError
from trainyard.registry import trust
from trainyard.registry.target import Target
from trainyard.seams.docker import push as docker_push
from trainyard.seams.docker.daemon import Daemon
from trainyard.seams.docker.engine import Engine
from trainyard.seams.registry.errors import CertificateError
from trainyard.spec.docker import Registry

LAB = "192.0.2.10:32000"
NVIDIA = """{
    "log-driver": "json-file",
    "runtimes": {
        "nvidia": {
            "args": [],
            "path": "nvidia-container-runtime"
        }
    },
    "labels": ["größe=1"]
}
"""


def merged(path: Path, text: str) -> str:
    path.write_text(text)
    trust.add(path, LAB, backup=path.with_name("backup"), hint="Repeat as root.")
    return path.read_text()


@pytest.mark.parametrize("text", ["", "\n", "{}", "{}\n"])
def test_settings_that_say_nothing_get_the_registry(tmp_path: Path, text: str) -> None:
    found = merged(tmp_path / "daemon.json", text)
    assert found == '{\n  "insecure-registries": [\n    "192.0.2.10:32000"\n  ]\n}\n'


def test_every_other_key_stays_in_its_place_and_as_it_is_indented(tmp_path: Path) -> None:
    text = NVIDIA.replace('["größe=1"]', '[\n        "größe=1"\n    ]')
    addition = ',\n    "insecure-registries": [\n        "192.0.2.10:32000"\n    ]\n}\n'
    assert merged(tmp_path / "daemon.json", text) == text.removesuffix("\n}\n") + addition
    assert merged(tmp_path / "tabs.json", '{\n\t"debug": true\n}\n').startswith('{\n\t"debug": true,\n\t"insecure')


def test_registries_that_are_there_already_stay_before_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "daemon.json"
    found = merged(path, '{"insecure-registries": ["198.51.100.1:5000"], "debug": true}')
    assert json.loads(found) == {"insecure-registries": ["198.51.100.1:5000", LAB], "debug": True}
    assert trust.has(path, LAB)
    assert not trust.has(tmp_path / "none.json", LAB)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('{\n  "debug": true,\n}', "is not JSON: Expecting property name enclosed in double quotes"),
        ("[]", "is not a JSON object"),
        ('{"insecure-registries": "192.0.2.1"}', "has insecure-registries that are not a list"),
    ],
)
def test_settings_that_docker_cannot_read_are_refused_and_stay_as_they_are(
    tmp_path: Path, text: str, what: str
) -> None:
    path = tmp_path / "daemon.json"
    with pytest.raises(PrerequisiteError) as caught:
        merged(path, text)
    assert caught.value.what == f"Docker's settings file {what}"
    assert (caught.value.where or "").startswith(f"{path}:3:1" if "JSON:" in what else str(path))
    assert [file.name for file in tmp_path.iterdir()] == ["daemon.json"]
    assert path.read_text() == text


def test_a_settings_file_is_replaced_with_its_mode_and_a_copy_is_left(tmp_path: Path) -> None:
    path = tmp_path / "daemon.json"
    path.write_text("{}")
    path.chmod(0o640)
    link = tmp_path / "link.json"
    link.symlink_to(path)
    backup = trust.backup_of(path, now=datetime(2026, 11, 21, 15, 4, 5, tzinfo=timezone.utc))
    trust.add(link, LAB, backup=backup, hint="")
    assert (backup.name, backup.read_text()) == ("daemon.json.20261121-150405", "{}")
    assert (LAB in path.read_text(), stat.S_IMODE(path.stat().st_mode), link.is_symlink()) == (True, 0o640, True)


def test_a_settings_file_that_is_not_there_is_made_without_a_copy(tmp_path: Path) -> None:
    path = tmp_path / "docker" / "daemon.json"
    trust.add(path, LAB, backup=tmp_path / "backup", hint="")
    assert trust.has(path, LAB)
    assert not (tmp_path / "backup").exists()


def test_a_file_that_cannot_be_written_is_an_error_with_the_way_to_root(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PrerequisiteError) as caught:
        trust.write_for_all(tmp_path / "file" / "ca.crt", b"", hint="Repeat as root.")
    assert caught.value.hint == "Repeat as root."


def test_a_ca_is_there_for_everybody_whatever_roots_umask_is(tmp_path: Path) -> None:
    path = tmp_path / "certs.d" / "reg:5000" / "ca.crt"
    before = os.umask(0o077)
    try:
        trust.write_for_all(path, b"a CA", hint="")
    finally:
        os.umask(before)
    modes = [stat.S_IMODE(each.stat().st_mode) for each in (path.parent.parent, path.parent, path)]
    assert modes == [0o755, 0o755, 0o644]


@pytest.mark.parametrize(
    ("docker_host", "what"),
    [
        ("ssh://ops@192.0.2.7", "the Docker that is used here runs on 192.0.2.7: registry.trust changes the host it"),
        ("unix:///none.sock", "no dockerd of this machine answers on this socket: it is Docker Desktop's, or runs in"),
    ],
)
def test_an_engine_whose_files_are_not_here_is_not_changed_from_here(
    monkeypatch: pytest.MonkeyPatch, docker_host: str, what: str
) -> None:
    def refuse(engine: Engine, reference: str, login: object) -> None:
        raise CertificateError("plain HTTP")

    monkeypatch.setattr(docker_push, "registry_digest", refuse)
    registry = Registry(address=LAB, insecure=True)
    with pytest.raises((PrerequisiteError, RequestError)) as caught:
        trust.trust_steps(Target(registry, Engine(docker_host, cast("Any", None), {}), {}))
    assert caught.value.what.startswith(what)


def test_a_daemon_reads_the_file_that_it_was_given_last() -> None:
    daemon = Daemon(1, ("--config-file", "/a.json", "--config-file=/b.json"), Path("/etc"))
    assert daemon.settings == Path("/b.json")
    assert Daemon(1, ("-H", "fd://"), Path("/etc")).settings == Path("/etc/docker/daemon.json")
    assert Daemon(1, (), Path("/home/ann/.config")).certificates == Path("/home/ann/.config/docker/certs.d")


def test_a_daemon_with_the_setting_as_a_flag_keeps_it_out_of_the_file() -> None:
    with pytest.raises(PrerequisiteError) as caught:
        trust.refuse_flag(Daemon(812, ("-H", "fd://", "--insecure-registry=192.0.2.9:5000"), Path("/etc")), LAB)
    assert caught.value.where == "dockerd (pid 812)"
    assert "--insecure-registry=192.0.2.10:32000" in str(caught.value.hint)
    trust.refuse_flag(Daemon(812, ("-H", "fd://"), Path("/etc")), LAB)
