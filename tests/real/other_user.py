"""Run commands as an ordinary user, where the tests run as root."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from pathlib import Path

from tests.bed.places import need

NOBODY = 65534
CHECKOUT = Path(__file__).parent.parent.parent


def as_nobody() -> tuple[str, ...]:
    """Return the start of a command that runs as an unprivileged user; empty if this user is one.

    Python or the checkout may be in a directory that only root may enter. In the command's mount
    namespace that directory is replaced by one that holds nothing else.
    """
    if os.getuid() != 0:
        return ()

    need(["unshare", "setpriv"])
    stage = Path(tempfile.gettempdir(), "trainyard-tests-stage")
    before, after = [], []
    hidden: set[Path] = set()

    for number, path in enumerate((Path(sys.base_prefix), CHECKOUT)):
        closed = next(
            (parent for parent in reversed(path.parents) if not parent.stat().st_mode & 0o001), None
        )
        if closed is not None:
            before += [
                ["mkdir", "-p", f"{stage}/{number}"],
                ["mount", "--bind", str(path), f"{stage}/{number}"],
            ]
            after += [
                ["mkdir", "-p", str(path)],
                ["mount", "--bind", f"{stage}/{number}", str(path)],
            ]
            hidden.add(closed)

    over = [
        ["mount", "-t", "tmpfs", "-o", "mode=755", "none", str(path)] for path in sorted(hidden)
    ]
    lines = [shlex.join(command) for command in (*before, *over, *after)]
    user = f"--reuid={NOBODY} --regid={NOBODY} --clear-groups"

    return (
        "unshare",
        "--mount",
        "sh",
        "-ec",
        "\n".join([*lines, f'exec setpriv {user} -- "$@"']),
        "sh",
    )
