"""What a registry of one's own is made with, what it needs at its address, and what its user is warned of."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, cast

import pytest
from cryptography import x509

from trainyard.errors import PrerequisiteError, RequestError
from trainyard.registry import access, certificates, container, up
from trainyard.registry.access import HostPort
from trainyard.registry.target import Target
from trainyard.seams.docker.engine import Engine
from trainyard.spec.docker import Registry

GIBIBYTE = 1024**3
NOW = datetime(2026, 11, 21, 15, 0, tzinfo=timezone.utc)
HOST = "192.0.2.10"
CA = certificates.make_ca(HOST, now=NOW)
LOGIN = {"username": "ann", "password_env": "PASSWORD"}


def target(address: str = f"{HOST}:32000", *, docker_host: str = "unix:///docker.sock", **more: object) -> Target:
    registry = Registry.model_validate({"address": address, **more})
    return Target(registry, Engine(docker_host, cast("Any", None), {}), {})


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


def test_the_ca_is_the_named_one_else_ours_else_a_public_one(tmp_path: Path) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path)}
    registry = target().registry
    assert access.ca_file(registry, environ) is None
    ours = tmp_path / "trainyard" / "registries" / "192.0.2.10_32000" / "ca.pem"
    ours.parent.mkdir(parents=True)
    ours.touch()
    assert access.ca_file(registry, environ) == ours
    assert access.ca_file(target(ca_file="/lab/ca.pem").registry, environ) == Path("/lab/ca.pem")
    assert access.ca_file(target(insecure=True).registry, environ) is None


def test_a_certificate_is_renewed_a_month_before_its_end() -> None:
    server = certificates.make_server(CA, HOST, now=NOW).certificate
    problems = {days: certificates.expiry_problem(server, now=NOW + timedelta(days=days)) for days in (792, 800)}
    assert problems == {792: None, 800: "its certificate is good until 2029-02-22"}


def test_no_certificate_outlives_its_ca() -> None:
    last = certificates.make_server(CA, HOST, now=NOW + timedelta(days=3600))
    server, ca = (x509.load_pem_x509_certificate(pair.certificate) for pair in (last, CA))
    assert server.not_valid_after_utc <= ca.not_valid_after_utc


@pytest.mark.parametrize("host", ["192.0.2.10", "2001:db8::1", "registry.lab"])
def test_the_ca_counts_for_its_own_host_only(host: str) -> None:
    ca = x509.load_pem_x509_certificate(certificates.make_ca(host, now=NOW).certificate)
    (subtree,) = ca.extensions.get_extension_for_class(x509.NameConstraints).value.permitted_subtrees or []
    assert str(subtree.value).removesuffix("/32").removesuffix("/128") == host


def test_a_password_is_kept_as_a_hash_that_only_it_matches() -> None:
    line = container.htpasswd_line("ann", "correct horse")
    assert line.startswith(b"ann:$2b$08$")
    assert b"horse" not in line
    assert container.has_password(line, "ann", "correct horse")
    assert not container.has_password(line, "ann", "correct mule")
    assert not container.has_password(line, "bob", "correct horse")
    assert not container.has_password(b"", "ann", "correct horse")
    # What bcrypt can count of it.
    assert container.has_password(container.htpasswd_line("ann", "ä" * 50), "ann", "ä" * 50)


def test_a_registry_is_given_what_its_settings_ask_for(tmp_path: Path) -> None:
    plain = container.files(target(insecure=True))
    assert list(plain) == [container.CONFIG]
    assert "auth" not in json.loads(plain[container.CONFIG])
    full = replace(target(**LOGIN), environ={"XDG_STATE_HOME": str(tmp_path), "PASSWORD": "open sesame"})
    certificates.keep_ca(full, None)
    files = container.files(full)
    assert files.keys() == {container.CONFIG, container.CERTIFICATE, container.KEY, container.CA, container.HTPASSWD}
    config = json.loads(files[container.CONFIG])
    assert config["http"]["tls"]["certificate"] == container.CERTIFICATE
    assert config["auth"] == {"htpasswd": {"realm": "trainyard", "path": container.HTPASSWD}}
    assert b"sesame" not in b"".join(files.values())
    assert (full.state / "ca.key").stat().st_mode & 0o777 == 0o600


def test_a_disk_that_is_as_good_as_full_is_refused_and_a_small_one_is_warned_of() -> None:
    with pytest.raises(PrerequisiteError, match=r"too little disk for a registry: 1023\.0 MiB free"):
        up.disk_warnings(GIBIBYTE - 1024**2)
    assert up.disk_warnings(5 * GIBIBYTE) == [
        "only 5.0 GiB of disk are free where Docker keeps its data, and training images are large"
    ]
    assert up.disk_warnings(30 * GIBIBYTE) == up.disk_warnings(None) == []


@pytest.mark.parametrize(
    ("registry", "address", "warnings"),
    [
        (target("127.0.0.1:32000", insecure=True), "127.0.0.1", []),
        (target(**LOGIN), HOST, []),
        (
            target(insecure=True),
            HOST,
            ["anybody who reaches 192.0.2.10:32000 can push to it: give it registry.username and password_env"],
        ),
        (
            target(insecure=True, **LOGIN),
            HOST,
            ["the password travels in clear text: leave out `insecure: true`, and TLS is made for you"],
        ),
    ],
)
def test_who_can_reach_it_is_warned_of(registry: Target, address: str, warnings: list[str]) -> None:
    assert up.address_warnings(registry, address) == warnings


def test_what_cannot_be_run_is_refused_before_anything_is_made() -> None:
    with pytest.raises(RequestError, match=r"amazonaws\.com is Amazon's: registry\.up runs registries of one's own"):
        up.up_steps(target("123456789012.dkr.ecr.eu-west-1.amazonaws.com", login="ecr"))
    with pytest.raises(PrerequisiteError, match=r"\$PASSWORD is not set: it is to hold the password of ann"):
        up.up_steps(target("127.0.0.1:32000", **LOGIN))
