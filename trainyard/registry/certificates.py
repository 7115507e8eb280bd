"""A registry's self-signed certificate, which is its own CA.

It cannot sign other certificates. Certificate and key are kept on this machine
and in the registry's container, so that a new container gets the same ones,
which hosts already trust.
"""

from __future__ import annotations

import ipaddress
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAYS = 3650
DAY = timedelta(days=1)


class KeyPair(NamedTuple):
    """A certificate and its private key, both as PEM."""

    certificate: bytes
    key: bytes


def make(host: str, *, now: datetime) -> KeyPair:
    """Make a key and a self-signed certificate for a host name or address."""
    key = generate_private_key(SECP256R1())
    # X.509 allows 64 characters for a common name.
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"Trainyard registry {host}"[:64])])
    try:
        served: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        served = x509.DNSName(host.lower())

    # Valid from a day ago, because the clocks of other hosts may be behind.
    since = now - DAY
    until = now + DAYS * DAY
    certificate = (
        x509.CertificateBuilder(
            name, name, key.public_key(), x509.random_serial_number(), since, until
        )
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([served]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )

    pem = serialization.Encoding.PEM
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return KeyPair(certificate.public_bytes(pem), private)


def load(directory: Path) -> KeyPair | None:
    try:
        return KeyPair((directory / "ca.pem").read_bytes(), (directory / "server.key").read_bytes())
    except FileNotFoundError:
        return None


def save(pair: KeyPair, directory: Path) -> None:
    """Write a certificate and its key, readable only by their owner."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name, content in (("server.key", pair.key), ("ca.pem", pair.certificate)):
        temporary = directory / f"{name}.new"
        temporary.touch(mode=0o600)
        temporary.write_bytes(content)
        temporary.replace(directory / name)
