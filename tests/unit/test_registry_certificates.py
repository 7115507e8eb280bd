"""Certificates and passwords that are made for a registry of one's own."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, cast

import pytest
from cryptography import x509

from trainyard.errors import PrerequisiteError, RequestError
from trainyard.registry import authority, certificates, passwords
from trainyard.registry.site import Site
from trainyard.seams.docker.engine import Engine
from trainyard.spec.docker import Registry

NOW = datetime(2026, 11, 21, 15, 0, tzinfo=timezone.utc)
HOST = "192.0.2.10"
CA = certificates.make_ca(HOST, now=NOW)
SERVER = certificates.make_server(CA, HOST, now=NOW)


def problem(*, host: str = HOST, days: int = 0, ca: certificates.KeyPair = CA) -> str | None:
    now = NOW + timedelta(days=days)
    return certificates.server_problem(SERVER.certificate, ca.certificate, host, now=now)


def test_a_new_certificate_is_good_and_is_renewed_a_month_before_its_end() -> None:
    assert problem() is None
    assert problem(days=793) is None
    assert problem(days=800) == "the certificate expires in 24 days"
    assert problem(days=830) == "the certificate has expired 6 days ago"


def test_a_certificate_for_another_host_is_told() -> None:
    assert problem(host="192.0.2.11") == "the certificate is not for 192.0.2.11"
    assert problem(host="registry.lab") == "the certificate is not for registry.lab"


def test_a_certificate_of_another_ca_is_told() -> None:
    assert problem(ca=certificates.make_ca(HOST, now=NOW)) == "the certificate is of another CA"


def test_a_ca_lives_for_ten_years_and_no_certificate_outlives_it() -> None:
    late = NOW + timedelta(days=3600)
    assert certificates.ca_problem(CA.certificate, now=NOW) is None
    assert certificates.ca_problem(CA.certificate, now=late + timedelta(days=30)) == "the CA expires in 20 days"
    assert certificates.ca_problem(CA.certificate, now=late + timedelta(days=60)) == "the CA has expired 10 days ago"
    last = x509.load_pem_x509_certificate(certificates.make_server(CA, HOST, now=late).certificate)
    assert last.not_valid_after_utc <= x509.load_pem_x509_certificate(CA.certificate).not_valid_after_utc


@pytest.mark.parametrize("host", ["192.0.2.10", "2001:db8::1", "registry.lab"])
def test_the_ca_counts_for_its_own_host_only(host: str) -> None:
    ca = x509.load_pem_x509_certificate(certificates.make_ca(host, now=NOW).certificate)
    (subtree,) = ca.extensions.get_extension_for_class(x509.NameConstraints).value.permitted_subtrees or []
    assert str(subtree.value).removesuffix("/32").removesuffix("/128") == host


def test_a_key_of_another_certificate_signs_nothing(tmp_path: Path) -> None:
    engine = Engine("unix:///x.sock", cast("Any", None), {})
    site = Site(Registry(address=f"{HOST}:32000"), engine, {"XDG_STATE_HOME": str(tmp_path)})
    site.state.mkdir(parents=True)
    (site.state / "ca.pem").write_bytes(CA.certificate)
    (site.state / "ca.key").write_bytes(CA.key)
    assert authority.pair(site) == CA
    # What a crash leaves that came between the two files.
    (site.state / "ca.key").write_bytes(certificates.make_ca(HOST, now=NOW).key)
    with pytest.raises(PrerequisiteError) as caught:
        authority.pair(site)
    assert caught.value.what == f"the key of the CA of {HOST}:32000 is another one than its certificate's"


def test_a_password_is_kept_as_a_hash_that_only_it_matches() -> None:
    line = passwords.line("ann", "correct horse")
    assert line.startswith(b"ann:$2b$08$")
    assert line.endswith(b"\n")
    assert b"horse" not in line
    assert passwords.matches(line, "ann", "correct horse")
    assert not passwords.matches(line, "ann", "correct mule")
    assert not passwords.matches(line, "bob", "correct horse")
    assert not passwords.matches(b"", "ann", "correct horse")
    assert not passwords.matches(b"ann:not a hash", "ann", "correct horse")


def test_what_a_password_file_cannot_hold_is_refused() -> None:
    with pytest.raises(RequestError) as colon:
        passwords.line("ann:admin", "secret")
    assert str(colon.value) == "registry.username 'ann:admin' must not contain ':' or a line break"
    with pytest.raises(RequestError) as long:
        passwords.line("ann", "ä" * 37)
    assert str(long.value) == (
        "the registry's password is longer than the 72 bytes that count\n  -> Choose a shorter one."
    )
