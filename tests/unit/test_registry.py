"""A private registry: its settings, the files at its address, and its user's warnings."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, cast

import pytest
from cryptography import x509

from trainyard.registry import access, certificates, container, lifecycle
from trainyard.registry.access import HostPort
from trainyard.registry.target import Target
from trainyard.seams.docker.engine import Engine
from trainyard.spec.docker import Registry

GIBIBYTE = 1024**3
NOW = datetime(2026, 11, 21, 15, 0, tzinfo=timezone.utc)
HOST = "192.0.2.10"
LOGIN = {"username": "ann", "password_env": "PASSWORD"}


def target(address: str = f"{HOST}:32000", **more: object) -> Target:
    registry = Registry.model_validate({"address": address, **more})
    return Target(registry, Engine("unix:///docker.sock", cast("Any", None), {}), {})


@pytest.mark.parametrize(
    ("address", "insecure", "expected"),
    [
        ("192.0.2.10:32000", True, HostPort("192.0.2.10", 32000)),
        ("registry.lab", False, HostPort("registry.lab", 443)),
        ("[::1]:5000", True, HostPort("::1", 5000)),
        ("[2001:db8::1]", False, HostPort("2001:db8::1", 443)),
    ],
)
def test_an_address_is_a_host_and_a_port(address: str, insecure: bool, expected: HostPort) -> None:
    host_port = target(address, insecure=insecure).host_port
    assert host_port == expected
    assert host_port.is_loopback == ("::1" in address and "db8" not in address)


def test_the_ca_is_the_named_one_else_trainyards_else_a_public_one(tmp_path: Path) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path)}
    registry = target().registry
    assert access.ca_file(registry, environ) is None
    ours = tmp_path / "trainyard" / "registries" / "192.0.2.10_32000" / "ca.pem"
    ours.parent.mkdir(parents=True)
    ours.touch()
    assert access.ca_file(registry, environ) == ours
    assert access.ca_file(target(ca_file="/lab/ca.pem").registry, environ) == Path("/lab/ca.pem")
    assert access.ca_file(target(insecure=True).registry, environ) is None


@pytest.mark.parametrize("host", ["192.0.2.10", "2001:db8::1", "registry.lab"])
def test_a_certificate_is_good_for_its_own_host_and_signs_no_other(host: str) -> None:
    extensions = x509.load_pem_x509_certificate(
        certificates.make(host, now=NOW).certificate
    ).extensions
    (served,) = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert str(served.value) == host
    assert not extensions.get_extension_for_class(x509.BasicConstraints).value.ca


@pytest.mark.parametrize("password", ["correct horse", "ä" * 50])
def test_a_password_is_kept_as_a_hash(password: str) -> None:
    line = container.htpasswd_line("ann", password)
    assert line.startswith(b"ann:$2b$08$")
    assert password.encode() not in line


def test_a_registry_is_given_what_its_settings_ask_for(tmp_path: Path) -> None:
    plain = container.files(target(insecure=True))
    assert list(plain) == [container.CONFIG]
    assert "auth" not in json.loads(plain[container.CONFIG])
    full = replace(
        target(**LOGIN), environ={"XDG_STATE_HOME": str(tmp_path), "PASSWORD": "open sesame"}
    )
    certificates.save(certificates.make(HOST, now=NOW), full.state)
    files = container.files(full)

    assert files.keys() == {
        container.CONFIG,
        container.CERTIFICATE,
        container.KEY,
        container.HTPASSWD,
    }

    config = json.loads(files[container.CONFIG])
    assert config["http"]["tls"]["certificate"] == container.CERTIFICATE
    assert config["auth"] == {"htpasswd": {"realm": "trainyard", "path": container.HTPASSWD}}
    assert b"sesame" not in b"".join(files.values())
    assert (full.state / "server.key").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("registry", "address", "free", "warnings"),
    [
        (target("127.0.0.1:32000", insecure=True), "127.0.0.1", 30 * GIBIBYTE, []),
        (
            target("127.0.0.1:32000", insecure=True),
            "127.0.0.1",
            5 * GIBIBYTE,
            ["only 5.0 GiB of disk are free where Docker keeps its data, and images are large"],
        ),
        (target(**LOGIN), HOST, None, []),
        (
            target(insecure=True),
            HOST,
            None,
            [
                (
                    "anybody who reaches 192.0.2.10:32000 can push to it: give it registry.username "
                    "and password_env"
                )
            ],
        ),
        (
            target(insecure=True, **LOGIN),
            HOST,
            None,
            [
                (
                    "the password travels in clear text: leave out `insecure: true`, and TLS is made "
                    "for you"
                )
            ],
        ),
    ],
)
def test_a_small_disk_and_who_can_reach_it_are_warned_of(
    registry: Target, address: str, free: int | None, warnings: list[str]
) -> None:
    assert lifecycle.warnings(registry.registry, address, free=free) == warnings
