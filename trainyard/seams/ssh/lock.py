"""One command at a time changes hosts, whichever machine it was typed on: a lock on one of them."""

from __future__ import annotations

import getpass
import re
import socket

from trainyard.errors import NotReadyError
from trainyard.seams.ssh.connection import Connection, Held

# The kernel lets go of it with its holder: `cat`, which ends with the connection that feeds it.
LOCK = """umask 077; exec 2>&1 9>> "$1"
flock -n 9 || { cat "$1"; exit 1; }
echo "$2 since $(date '+%F %T %Z') (process $$)" > "$1"
echo locked
exec cat > /dev/null"""


def take(connection: Connection, path: str) -> Held:
    """Lock a file there as long as what is returned exists. Raises NotReadyError that names who has
    it.
    """
    held = connection.hold(
        ["sh", "-c", LOCK, "sh", path, f"{getpass.getuser()}@{socket.gethostname()}"]
    )
    if held.line == "locked":
        return held
    process = re.search(r"\(process (\d+)\)", held.line)
    raise NotReadyError(
        "another command is changing these hosts",
        where=f"{connection.address.host}: {held.line}",
        hint="Wait for it, and repeat this one. If the machine that it runs on is gone, end that "
        "process: "
        f"ssh {connection.address} sudo kill {process[1] if process else 'PROCESS'}",
    )
