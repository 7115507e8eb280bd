"""Which registry is meant, what it is given, and whether Docker accepts it."""

from __future__ import annotations

import json
import os
import stat
from datetime import datetime, timezone
from pathlib import Path

import pytest

from trainyard.errors import PrerequisiteError
from trainyard.registry import inside, settings, settings_file
from trainyard.registry.certificates import KeyPair
from trainyard.registry.settings import Place
from trainyard.registry.trust import accepts_plain_http, refuse_flag
from trainyard.seams.docker.daemon import Daemon, values
from trainyard.spec import ClusterSpec
from trainyard.spec.docker import Registry


def registry(address: str, **more: object) -> Registry:
    return Registry.model_validate({"address": address, **more})


def test_a_cluster_file_without_a_registry_means_the_one_on_loopback() -> None:
    spec = ClusterSpec.model_validate({"name": "lab", "backend": "local"})
    found = settings.registry_of(spec)
    assert (found.address, found.insecure) == ("127.0.0.1:32000", True)


@pytest.mark.parametrize(
    ("address", "insecure", "place"),
    [
        ("192.0.2.10:32000", True, Place("192.0.2.10", 32000)),
        ("registry.lab", False, Place("registry.lab", 443)),
        ("registry.lab", True, Place("registry.lab", 80)),
        ("[::1]:5000", True, Place("::1", 5000)),
        ("[2001:db8::1]", False, Place("2001:db8::1", 443)),
    ],
)
def test_an_address_is_a_host_and_a_port(address: str, insecure: bool, place: Place) -> None:
    assert settings.place(registry(address, insecure=insecure)) == place


def test_only_loopback_is_loopback() -> None:
    assert [Place(host, 1).is_loopback for host in ("127.0.0.1", "localhost", "::1")] == [True] * 3
    assert [Place(host, 1).is_loopback for host in ("192.0.2.1", "localhost.lab", "::2")] == [False] * 3


def test_the_ca_is_the_named_one_else_ours_else_a_public_one(tmp_path: Path) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path)}
    one = registry("192.0.2.10:32000")
    assert settings.ca_file(one, environ) is None
    ours = tmp_path / "trainyard" / "registries" / "192.0.2.10_32000" / "ca.pem"
    ours.parent.mkdir(parents=True)
    ours.touch()
    assert settings.ca_file(one, environ) == ours
    assert settings.ca_file(registry("192.0.2.10:32000", ca_file="/lab/ca.pem"), environ) == Path("/lab/ca.pem")
    assert settings.ca_file(registry("192.0.2.10:32000", insecure=True), environ) is None


def test_a_registry_is_given_what_its_settings_ask_for_and_secrets_are_roots_alone() -> None:
    plain = inside.files(server=None, ca=None, htpasswd=None)
    assert list(plain) == [inside.CONFIG]
    assert "auth" not in json.loads(plain[inside.CONFIG].content)
    full = inside.files(server=KeyPair(b"certificate", b"key"), ca=b"ca", htpasswd=b"ann:hash")
    assert {path: file.mode for path, file in full.items()} == {
        inside.CONFIG: 0o600,
        inside.CERTIFICATE: 0o644,
        inside.KEY: 0o600,
        inside.CA: 0o644,
        inside.HTPASSWD: 0o600,
    }
    config = json.loads(full[inside.CONFIG].content)
    assert config["http"]["tls"] == {
        "certificate": inside.CERTIFICATE,
        "key": inside.KEY,
        "minimumtls": "tls1.2",
    }
    assert config["auth"] == {"htpasswd": {"realm": "trainyard", "path": inside.HTPASSWD}}
    assert config["storage"]["delete"] == {"enabled": True}


INFO = {
    "RegistryConfig": {
        "InsecureRegistryCIDRs": ["127.0.0.0/8", "192.0.2.0/24"],
        "IndexConfigs": {
            "docker.io": {"Secure": True},
            "198.51.100.1:5000": {"Secure": False},
            "192.0.2.7:5000": {"Secure": True},
        },
    }
}


@pytest.mark.parametrize(
    ("address", "found", "accepted"),
    [
        ("198.51.100.1:5000", ("198.51.100.1",), True),
        ("198.51.100.1:5001", ("198.51.100.1",), False),
        ("127.0.0.1:32000", ("127.0.0.1",), True),
        ("registry.lab:5000", ("192.0.2.10",), True),
        ("192.0.2.7:5000", ("192.0.2.7",), False),
        ("localhost:5000", ("::1", "127.0.0.1"), True),
        ("[fe80::1]:5000", ("fe80::1%eth0",), False),
        ("nowhere.lab:5000", (), False),
    ],
)
def test_docker_accepts_plain_http_by_entry_or_by_network(address: str, found: tuple[str, ...], accepted: bool) -> None:
    assert accepts_plain_http(INFO, address, found=found) is accepted


def test_a_daemon_reads_the_file_that_it_was_told_of_last() -> None:
    told = Daemon(1, "/usr/sbin/dockerd", ("--config-file", "/a.json", "--config-file=/b.json"), Path("/etc"))
    assert told.settings == Path("/b.json")
    assert Daemon(1, "dockerd", ("-H", "fd://"), Path("/etc")).settings == Path("/etc/docker/daemon.json")
    assert Daemon(1, "dockerd", (), Path("/home/ann/.config")).certificates == Path("/home/ann/.config/docker/certs.d")
    assert list(
        values(["--insecure-registry=a:1", "--debug", "--insecure-registry", "b:2"], "--insecure-registry")
    ) == [
        "a:1",
        "b:2",
    ]


def test_a_daemon_with_the_setting_as_a_flag_keeps_it_out_of_the_file() -> None:
    daemon = Daemon(812, "/usr/sbin/dockerd", ("-H", "fd://", "--insecure-registry=192.0.2.9:5000"), Path("/etc"))
    with pytest.raises(PrerequisiteError) as caught:
        refuse_flag(daemon, "192.0.2.10:32000")
    assert str(caught.value) == (
        "dockerd is started with --insecure-registry, and does not start if its file has such settings as well\n"
        "  at dockerd (pid 812)\n"
        "  -> Add the flag --insecure-registry=192.0.2.10:32000 there (systemctl edit docker), and restart Docker."
    )
    refuse_flag(Daemon(812, "/usr/sbin/dockerd", ("-H", "fd://"), Path("/etc")), "192.0.2.10:32000")


def accept(path: Path) -> None:
    """Find nothing wrong with a file."""


BACKUP = datetime(2026, 11, 21, 15, 4, 5, tzinfo=timezone.utc)


def test_a_settings_file_is_replaced_with_its_mode_and_a_copy_is_left(tmp_path: Path) -> None:
    path = tmp_path / "daemon.json"
    path.write_text("old")
    path.chmod(0o640)
    backup = settings_file.backup_of(path, now=BACKUP)
    settings_file.replace(path, "new", backup=backup, check=accept, hint="")
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("new", 0o640)
    assert (backup.name, backup.read_text()) == ("daemon.json.20261121-150405", "old")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["daemon.json", backup.name]


def test_a_settings_file_that_is_a_link_stays_one(tmp_path: Path) -> None:
    real = tmp_path / "real.json"
    real.write_text("old")
    link = tmp_path / "daemon.json"
    link.symlink_to(real)
    settings_file.replace(link, "new", backup=tmp_path / "backup", check=accept, hint="")
    assert link.is_symlink()
    assert real.read_text() == "new"


def test_a_settings_file_that_is_not_there_is_made_without_a_copy(tmp_path: Path) -> None:
    path = tmp_path / "docker" / "daemon.json"
    settings_file.replace(path, "new", backup=tmp_path / "backup", check=accept, hint="")
    assert path.read_text() == "new"
    assert not (tmp_path / "backup").exists()


def test_settings_that_are_refused_leave_everything_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "daemon.json"
    path.write_text("old")

    def refuse(new: Path) -> None:
        assert new.read_text() == "new"
        raise PrerequisiteError("refused")

    with pytest.raises(PrerequisiteError):
        settings_file.replace(path, "new", backup=tmp_path / "backup", check=refuse, hint="")
    assert [one.name for one in tmp_path.iterdir()] == ["daemon.json"]
    assert path.read_text() == "old"


def test_a_settings_file_that_cannot_be_written_is_an_error_with_the_way_to_root(tmp_path: Path) -> None:
    path = tmp_path / "no-directory" / "daemon.json"
    path.parent.touch()
    with pytest.raises(PrerequisiteError) as caught:
        settings_file.replace(path, "new", backup=tmp_path / "b", check=accept, hint="Repeat as root.")
    assert str(caught.value) == f"{path} cannot be written: File exists\n  -> Repeat as root."


def test_a_ca_is_there_for_everybody_whatever_roots_umask_is(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        settings_file.place(tmp_path / "certs.d" / "reg:5000" / "ca.crt", b"a CA", hint="")
    finally:
        os.umask(before)
    found = [tmp_path / "certs.d", tmp_path / "certs.d" / "reg:5000", tmp_path / "certs.d" / "reg:5000" / "ca.crt"]
    assert [stat.S_IMODE(one.stat().st_mode) for one in found] == [0o755, 0o755, 0o644]


def test_a_state_directory_of_root_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "exists", refuse)
    with pytest.raises(PrerequisiteError) as caught:
        settings.ca_file(registry("192.0.2.10:32000"), {"HOME": "/home/ann"})
    assert caught.value.what == (
        "this user may not use /home/ann/.local/state/trainyard/registries/192.0.2.10_32000: Permission denied"
    )
