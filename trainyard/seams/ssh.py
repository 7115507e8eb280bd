"""The system's own ssh, to a Docker host: its configuration, its keys, its check of host keys; never a question."""

from __future__ import annotations

from urllib.parse import urlsplit

from trainyard.errors import PrerequisiteError

CONNECT_SECONDS = 10
# What ssh says, and what helps; the first that fits.
_CAUSES = (
    (
        "REMOTE HOST IDENTIFICATION HAS CHANGED",
        "Its host key changed. If that is known to be right: ssh-keygen -R {known}",
    ),
    ("Host key verification failed", "Its host key is not known here. Look at it and accept it once: ssh {there}"),
    ("Permission denied", "It must let you in without a password: ssh-copy-id {there}"),
)


def command(address: str, *options: str) -> list[str]:
    """Return the command that reaches ssh://[user@]host[:port]; what should run there follows it."""
    parts = urlsplit(address)
    port = ["-p", str(parts.port)] if parts.port else []
    safe = ["-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_SECONDS}"]
    return ["ssh", *safe, *port, *options, "--", login(address)]


def login(address: str) -> str:
    """Return [user@]host of an address."""
    parts = urlsplit(address)
    return f"{parts.username}@{parts.hostname}" if parts.username else str(parts.hostname)


def there(address: str) -> str:
    """Return how a person types an address after `ssh`: -p 2222 ops@host."""
    port = urlsplit(address).port
    return f"-p {port} {login(address)}" if port else login(address)


def refused(address: str, said: list[str]) -> PrerequisiteError:
    """Return the error for a host that is not there or does not let us in, with the cause that ssh names."""
    parts = urlsplit(address)
    known = f"'[{parts.hostname}]:{parts.port}'" if parts.port else str(parts.hostname)
    where = f"{address}: {said[-1]}" if said else address
    for words, fix in _CAUSES:
        if words in "\n".join(said):
            hint = fix.format(there=there(address), known=known)
            return PrerequisiteError("the Docker host does not let us in by SSH", where=where, hint=hint)
    hint = f"It must work without a password or a question: ssh {there(address)} true"
    return PrerequisiteError("the Docker host cannot be reached by SSH", where=where, hint=hint)
