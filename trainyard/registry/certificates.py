"""A CA and a server certificate for a registry of ours, made here with `cryptography`.

The CA stays for years, so that the hosts that trust it go on to; the server's certificate can be renewed at any time.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from trainyard.registry.settings import is_ip

CA_DAYS = 3650
# Apple's limit for certificates that its systems accept (support.apple.com/HT211025); nobody else asks for less.
SERVER_DAYS = 824
RENEW_DAYS = 30


@dataclass(frozen=True)
class KeyPair:
    """A certificate and its private key, both as PEM."""

    certificate: bytes
    key: bytes

    @property
    def belong_together(self) -> bool:
        """Say whether the key is that of the certificate."""
        known = x509.load_pem_x509_certificate(self.certificate).public_key()
        return known == _private_key(self.key).public_key()


def make_ca(host: str, *, now: datetime) -> KeyPair:
    """Make the CA of one registry; what it signs counts for that host only (name constraints, RFC 5280)."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(f"Trainyard registry CA, {host}")
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    made = (
        _begun(name, name, key.public_key(), now=now, days=CA_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.NameConstraints(permitted_subtrees=[_subtree(host)], excluded_subtrees=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _pair(made, key)


def make_server(ca: KeyPair, host: str, *, now: datetime) -> KeyPair:
    """Make the certificate with which a registry answers at a host name or IP address."""
    issuer = x509.load_pem_x509_certificate(ca.certificate)
    issuer_key = _private_key(ca.key)
    key = ec.generate_private_key(ec.SECP256R1())
    # No certificate may outlive its CA.
    days = min(SERVER_DAYS, (issuer.not_valid_after_utc - now).days)
    made = (
        _begun(_name(host), issuer.subject, key.public_key(), now=now, days=days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([_alternative_name(host)]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
        .sign(issuer_key, hashes.SHA256())
    )
    return _pair(made, key)


def ca_problem(ca: bytes, *, now: datetime) -> str | None:
    """Say why a CA cannot be used to sign, or None if it can."""
    left = (x509.load_pem_x509_certificate(ca).not_valid_after_utc - now).days
    if left < 0:
        return f"the CA has expired {-left} days ago"
    return f"the CA expires in {left} days" if left <= RENEW_DAYS else None


def server_problem(server: bytes, ca: bytes, host: str, *, now: datetime) -> str | None:
    """Say why a server's certificate has to be made anew, or None if it is good for a month or more."""
    certificate = x509.load_pem_x509_certificate(server)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    if _alternative_name(host) not in names:
        return f"the certificate is not for {host}"
    try:
        certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(ca))
    except (InvalidSignature, ValueError, TypeError):
        return "the certificate is of another CA"
    left = (certificate.not_valid_after_utc - now).days
    if left < 0:
        return f"the certificate has expired {-left} days ago"
    return f"the certificate expires in {left} days" if left <= RENEW_DAYS else None


def fingerprint(certificate: bytes) -> str:
    """Return the SHA-256 fingerprint of a certificate, as browsers and openssl show it."""
    digest = x509.load_pem_x509_certificate(certificate).fingerprint(hashes.SHA256())
    return ":".join(f"{byte:02X}" for byte in digest)


def _begun(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, *, now: datetime, days: int
) -> x509.CertificateBuilder:
    # A day back: the clocks of other hosts may be behind.
    return x509.CertificateBuilder(
        issuer_name=issuer,
        subject_name=subject,
        public_key=key,
        serial_number=x509.random_serial_number(),
        not_valid_before=now - timedelta(days=1),
        not_valid_after=now + timedelta(days=days),
    )


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> KeyPair:
    pem = serialization.Encoding.PEM
    kept = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return KeyPair(certificate.public_bytes(pem), kept)


def _private_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(pem, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError(f"not a key of ours: {type(key).__name__}")
    return key


def _name(text: str) -> x509.Name:
    # X.509 allows 64 characters.
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _alternative_name(host: str) -> x509.GeneralName:
    return x509.IPAddress(ipaddress.ip_address(host)) if is_ip(host) else x509.DNSName(host.lower())


def _subtree(host: str) -> x509.GeneralName:
    return x509.IPAddress(ipaddress.ip_network(host)) if is_ip(host) else x509.DNSName(host.lower())
