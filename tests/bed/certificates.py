"""A certificate authority for a cluster of the bed, and the certificates that it signs."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = datetime.timedelta(days=1)
_SIGNS = x509.KeyUsage(
    key_cert_sign=True,
    crl_sign=True,
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


@dataclass(frozen=True)
class Authority:
    """A CA; its `certificate`, and the certificates and keys that it returns, are PEM."""

    key: ec.EllipticCurvePrivateKey
    signed: x509.Certificate

    @property
    def certificate(self) -> bytes:
        """Return the CA's certificate, which clients and servers trust."""
        return self.signed.public_bytes(serialization.Encoding.PEM)

    def write(self, directory: Path) -> None:
        """Write ca.crt and ca.key, with which the controller manager signs."""
        _write(directory, "ca", self.certificate, private(self.key))

    def sign(
        self, user: str, *, group: str | None = None, names: Sequence[str] = ()
    ) -> tuple[bytes, bytes]:
        """Return (certificate, key) for a client of this name and group.

        The certificate is valid for a server at `names`, too.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        parts = [x509.NameAttribute(NameOID.COMMON_NAME, user)]
        if group:
            parts.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))

        usages = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
        issued_by = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        builder = _builder(x509.Name(parts), self.signed.subject, key.public_key())
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        # Python 3.13 rejects certificates without an authority key identifier.
        builder = builder.add_extension(issued_by, critical=False)

        if names:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_name(one) for one in names]), critical=False
            )

        return builder.sign(self.key, hashes.SHA256()).public_bytes(
            serialization.Encoding.PEM
        ), private(key)

    def write_pair(
        self,
        directory: Path,
        file: str,
        user: str,
        *,
        group: str | None = None,
        names: Sequence[str] = (),
    ) -> None:
        _write(directory, file, *self.sign(user, group=group, names=names))


def new_authority() -> Authority:
    """Make a CA with a new key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "trainyard-bed")])
    own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    builder = _builder(subject, subject, key.public_key())
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    builder = builder.add_extension(own, critical=False).add_extension(_SIGNS, critical=True)
    return Authority(key, builder.sign(key, hashes.SHA256()))


def private(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a private key as PEM, in the format that the API server requires.

    The API server reads keys of service accounts in this format.
    """
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.timezone.utc)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - DAY)
        .not_valid_after(now + 30 * DAY)
    )


def _name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _write(directory: Path, name: str, certificate: bytes, key: bytes) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{name}.crt").write_bytes(certificate)
    file = directory / f"{name}.key"
    file.touch(mode=0o600)
    file.write_bytes(key)
