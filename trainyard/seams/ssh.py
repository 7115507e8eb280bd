"""The system's own ssh, to a Docker host: its configuration, its keys, its check of host keys; never a question."""

from __future__ import annotations

from urllib.parse import urlsplit

from trainyard.errors import PrerequisiteError

CONNECT_SECONDS = 10
# What ssh says, and what helps; the first that fits.
_CAUSES = (
    (
        "REMOTE HOST IDENTIFICATION HAS CHANGED",
        "Its host key changed. If that is known to be right: ssh-keygen -R {host}",
    ),
    ("Host key verification failed", "Its host key is not known here. Look at it and accept it once: ssh {login}"),
    ("Permission denied", "It must let you in without a password: ssh-copy-id {login}"),
    ("Could not resolve", "Is the name right? Try: ssh {login}"),
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


def refused(address: str, said: list[str]) -> PrerequisiteError:
    """Return the error for a host that does not let us in, with the cause that ssh names."""
    text = "\n".join(said)
    hint = f"It must work without a password or a question: ssh {login(address)} true"
    for words, fix in _CAUSES:
        if words in text:
            hint = fix.format(host=urlsplit(address).hostname, login=login(address))
            break
    return PrerequisiteError("the Docker host does not let us in by SSH", where=_where(address, said), hint=hint)


def _where(address: str, said: list[str]) -> str:
    return f"{address}: {said[-1]}" if said else address
