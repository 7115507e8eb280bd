"""Key pairs for machines that Trainyard makes."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from paramiko import PKey
from paramiko.pkey import UnknownKeyType
from paramiko.ssh_exception import SSHException


def new() -> str:
    key = Ed25519PrivateKey.generate()
    return key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode()


def public_key(file: Path) -> str | None:
    """Return a private key's public part, `TYPE BASE64`.

    Returns None if the key is unreadable or encrypted.
    """
    try:
        key = PKey.from_path(file)
    except (OSError, ValueError, TypeError, SSHException, UnknownKeyType):
        return None
    return f"{key.get_name()} {key.get_base64()}"
