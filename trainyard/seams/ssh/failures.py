"""Why a host cannot be reached by SSH, or its sudo refuses, and what helps: one table for every backend."""

from __future__ import annotations

import re
from typing import cast

from trainyard.diagnosis import Diagnosis, Rule, explain
from trainyard.errors import OutsideError, PrerequisiteError, TrainyardError
from trainyard.seams.ssh.config import Address, Settings

SUDO_PASSWORD = "TRAINYARD_SUDO_PASSWORD"  # noqa: S105 (the variable's name)


class HostError(PrerequisiteError):
    """A host cannot be reached, or does not let us in, or does not let us be root."""


class BrokenError(OutsideError):
    """The connection to a host broke."""


# Read against "EXCEPTION: its text", as paramiko and the system name them. {host} is what follows `ssh`.
REACH = (
    Rule(
        "BadHostKeyException",
        "the host key of {name} has changed",
        "Somebody may stand between. If the change is known to be right: ssh-keygen -R '{known}'",
    ),
    Rule(
        "UnknownHostKey",
        "the host key of {name} is not known here",
        "Look at it and accept it once: ssh {host}",
    ),
    Rule(
        "PasswordRequiredError: (?P<file>.*)",
        "the key to log in to {name} has a passphrase, and no agent holds it",
        "Give it to the agent: ssh-add {file}",
    ),
    Rule(
        "Authentication|BadAuthenticationType|AuthFailure",
        "{name} refuses every key of user {user}",
        "It must let you in without a password: ssh-copy-id {host}",
    ),
    Rule(
        "",
        "{name} cannot be reached by SSH on port {port}",
        "Is the name right, is it on, and does sshd run there? It must work without a question: ssh {host} true",
    ),
)
_WANTS_PASSWORD = re.compile("password|terminal is required|no tty|[Ss]orry")


def unreachable(text: str, address: Address, settings: Settings) -> TrainyardError:
    words = {"user": settings.user, "port": str(settings.port), "known": settings.known_as}
    # The last rule fits everything.
    cause = cast(Diagnosis, explain(text, REACH, name=address.host, host=str(address), **words))
    return HostError(cause.message, where=f"ssh {address}: {cause.raw.partition(': ')[2]}", hint=cause.hint)


def sudo_refused(stderr: str, address: Address, user: str) -> TrainyardError:
    """Return the error for what sudo printed instead of obeying."""
    hint = f"Try it there: ssh -t {address} sudo true"
    if _WANTS_PASSWORD.search(stderr):
        hint = f"Set {SUDO_PASSWORD} to the password of user {user} there, or allow it sudo without one (NOPASSWD)."
    last = stderr.strip().rpartition("\n")[2] or "it said nothing"
    return HostError(f"sudo of {address.host} refuses", where=f"ssh {address}: {last}", hint=hint)
