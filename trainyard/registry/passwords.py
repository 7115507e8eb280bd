"""The one user of a registry of ours, in the format of `htpasswd -B`."""

from __future__ import annotations

import bcrypt

from trainyard.errors import RequestError

# The registry computes the hash for every request; a push makes dozens. Cost 8 takes about 15 ms.
COST = 8
# bcrypt ignores what comes after, silently.
LONGEST = 72


def check(username: str, password: str) -> None:
    """Raise RequestError for what bcrypt or the format cannot hold."""
    if ":" in username or "\n" in username:
        raise RequestError(f"registry.username {username!r} must not contain ':' or a line break")
    if len(password.encode()) > LONGEST:
        raise RequestError(
            f"the registry's password is longer than the {LONGEST} bytes that count", hint="Choose a shorter one."
        )
    if not password:
        raise RequestError("the registry's password is empty")


def line(username: str, password: str) -> bytes:
    """Return the line of an htpasswd file. Raises RequestError for what it cannot hold."""
    check(username, password)
    return f"{username}:".encode() + bcrypt.hashpw(password.encode(), bcrypt.gensalt(COST)) + b"\n"


def matches(htpasswd: bytes, username: str, password: str) -> bool:
    """Say whether a file holds exactly this user with this password."""
    user, _, hashed = htpasswd.strip().partition(b":")
    if user != username.encode() or b"\n" in hashed:
        return False
    try:
        return bcrypt.checkpw(password.encode()[:LONGEST], hashed)
    except ValueError:
        return False
