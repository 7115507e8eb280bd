"""Why a host cannot be reached by SSH, or its sudo refuses, and what helps: one table for every backend."""

from __future__ import annotations

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
        "NoKeysError: (?P<files>.*)",
        "there is no key to log in to {name} with",
        "Neither an agent holds one, nor is there {files}. Make one (ssh-keygen), then: ssh-copy-id {host}",
    ),
    Rule(
        "Authentication|BadAuthenticationType|AuthFailure",
        "{name} refuses every key of user {user}",
        "It must let you in without a password: ssh-copy-id {host}",
    ),
    Rule("gaierror", "nobody knows a host {address}", "Is it spelt right? It is in DNS and ~/.ssh/config or nowhere."),
    Rule(
        "[Rr]efused|Unable to connect",
        "{name} refuses SSH connections on port {port}",
        "Does sshd run there, and on this port? ssh {host}",
    ),
    Rule(
        "[Tt]imed? ?out|Timeout|[Nn]o route|unreachable|NoValidConnections",
        "{name} does not answer on port {port}",
        "Is it on, and in reach of this machine? ssh {host}",
    ),
    Rule(
        "Connect failed|ChannelException",
        "jump host {jump} cannot reach {name} on port {port}",
        "Does it work from there? ssh -J {jump} {host}",
    ),
    Rule("", "{name} cannot be reached by SSH", "It must work without a question: ssh {host} true"),
)

# Read against what sudo prints.
SUDO = (
    Rule("command not found|not found$", "{name} has no sudo", "Install it there, or log in as root."),
    Rule(
        "not in the sudoers|not allowed|may not run",
        "user {user} of {name} may not use sudo",
        "Let an administrator add the user to the group sudo (or wheel).",
    ),
    Rule(
        "[Ss]orry|incorrect password|no password was provided",
        "sudo of {name} refuses the password",
        f"It is read from ${SUDO_PASSWORD}, and must be that of user {{user}} there.",
    ),
    Rule(
        "password is required|terminal is required|no tty",
        "sudo of {name} asks for a password",
        f"Set {SUDO_PASSWORD}, or let user {{user}} use sudo without one (NOPASSWD in /etc/sudoers.d).",
    ),
    Rule("", "sudo of {name} does not work", "Try it there: ssh -t {host} sudo true"),
)


def unreachable(text: str, address: Address, settings: Settings) -> TrainyardError:
    words = {"user": settings.user, "address": settings.host, "port": str(settings.port), "known": settings.known_as}
    jump = settings.jumps[-1] if settings.jumps else ""
    # The last rule of a table fits everything.
    found = cast(Diagnosis, explain(text, REACH, name=address.host, host=str(address), jump=jump, **words))
    return HostError(found.message, where=f"ssh {address}: {found.raw.partition(': ')[2]}", hint=found.hint)


def sudo_refused(stderr: str, address: Address, user: str) -> TrainyardError:
    lines = [line.strip() for line in stderr.splitlines() if line.strip()] or ["it said nothing"]
    found = cast(Diagnosis, explain("\n".join(lines), SUDO, name=address.host, host=str(address), user=user))
    return HostError(found.message, where=f"ssh {address}: {lines[-1]}", hint=found.hint)
