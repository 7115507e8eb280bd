"""Key pairs for machines that we make."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from paramiko import PKey
from paramiko.pkey import UnknownKeyType
from paramiko.ssh_exception import SSHException


def new() -> str:
    """Return a new private key, as OpenSSH writes it."""
    made = Ed25519PrivateKey.generate()
    return made.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode()


def public_key(file: Path) -> str | None:
    """Return the public part of a private key, as `TYPE BASE64`; None if the file is none, or needs
    a passphrase.
    """
    try:
        key = PKey.from_path(file)
    except (OSError, ValueError, TypeError, SSHException, UnknownKeyType):
        return None
    return f"{key.get_name()} {key.get_base64()}"
