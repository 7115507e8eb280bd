"""The CA and the server's certificate of a registry of ours, made here with `cryptography`.

The CA is made once and kept on this machine and, without its key, inside the registry's container: the hosts that trust
it go on to, and the server's certificate can be renewed at any time.
"""

from __future__ import annotations

import ipaddress
import os
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple, cast

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, generate_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from trainyard.errors import PrerequisiteError
from trainyard.registry.access import is_ip
from trainyard.registry.target import Target

CA_DAYS = 3650
# Apple's limit for certificates that its systems accept (support.apple.com/HT211025); nobody else asks for less.
SERVER_DAYS = 824
RENEW_DAYS = 30
_NO_OTHER_USE = dict.fromkeys(
    ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only", "decipher_only"),
    False,
)


class KeyPair(NamedTuple):
    """A certificate and its private key, both as PEM."""

    certificate: bytes
    key: bytes


def keep_ca(target: Target, known: bytes | None) -> None:
    """Make the CA; where the registry has one that another machine made, `known`, keep its certificate here too."""
    target.state.mkdir(parents=True, exist_ok=True, mode=0o700)
    if known is None:
        known, key = make_ca(target.host_port.host, now=target.now())
        _write(target.state / "ca.key", key)
    _write(target.state / "ca.pem", known)


def load_ca(target: Target) -> KeyPair:
    """Return the CA with its key. Raises PrerequisiteError where this machine has no such key."""
    try:
        return KeyPair((target.state / "ca.pem").read_bytes(), (target.state / "ca.key").read_bytes())
    except FileNotFoundError as error:
        raise PrerequisiteError(
            f"the key of the CA of {target.address} is not on this machine",
            where=str(target.state / "ca.key"),
            hint="Run registry.up on the machine that made the registry; or make all anew, which every host must "
            "trust again: invoke registry.down --purge",
        ) from error


def make_ca(host: str, *, now: datetime) -> KeyPair:
    """Make the CA of one registry; what it signs counts for that host only (name constraints, RFC 5280)."""
    key = generate_private_key(SECP256R1())
    name = _name(f"Trainyard registry CA, {host}")
    usage = x509.KeyUsage(digital_signature=True, key_cert_sign=True, crl_sign=True, **_NO_OTHER_USE)
    subtree = x509.IPAddress(ipaddress.ip_network(host)) if is_ip(host) else x509.DNSName(host.lower())
    builder = (
        _begun(name, name, key, now=now, until=now + timedelta(days=CA_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.NameConstraints(permitted_subtrees=[subtree], excluded_subtrees=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return _signed(builder, key, by=key)


def make_server(ca: KeyPair, host: str, *, now: datetime) -> KeyPair:
    """Make the certificate with which a registry answers at a host name or IP address."""
    issuer = x509.load_pem_x509_certificate(ca.certificate)
    issuer_key = cast("EllipticCurvePrivateKey", serialization.load_pem_private_key(ca.key, password=None))
    key = generate_private_key(SECP256R1())
    name = x509.IPAddress(ipaddress.ip_address(host)) if is_ip(host) else x509.DNSName(host.lower())
    # No certificate may outlive its CA.
    until = min(now + timedelta(days=SERVER_DAYS), issuer.not_valid_after_utc)
    builder = (
        _begun(_name(host), issuer.subject, key, now=now, until=until)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([name]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )
    return _signed(builder, key, by=issuer_key)


def expiry_problem(certificate: bytes, *, now: datetime) -> str | None:
    """Say why a server's certificate has to be made anew, or None if it is good for a month or more."""
    end = x509.load_pem_x509_certificate(certificate).not_valid_after_utc
    return f"its certificate is good until {end:%Y-%m-%d}" if (end - now).days <= RENEW_DAYS else None


def _begun(
    subject: x509.Name, issuer: x509.Name, key: EllipticCurvePrivateKey, *, now: datetime, until: datetime
) -> x509.CertificateBuilder:
    # A day back: the clocks of other hosts may be behind.
    since = now - timedelta(days=1)
    return x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number(), since, until)


def _signed(builder: x509.CertificateBuilder, key: EllipticCurvePrivateKey, *, by: EllipticCurvePrivateKey) -> KeyPair:
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return KeyPair(builder.sign(by, hashes.SHA256()).public_bytes(pem), private)


def _name(text: str) -> x509.Name:
    # X.509 allows 64 characters.
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _write(path: Path, content: bytes) -> None:
    temporary = path.with_suffix(".new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    temporary.replace(path)
