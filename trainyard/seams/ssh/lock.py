"""One command at a time changes hosts, from whatever machine: a lock on one of them."""

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
    """Lock a file there as long as the result exists.

    Raises NotReadyError that names the holder.
    """
    owner = f"{getpass.getuser()}@{socket.gethostname()}"
    lock = connection.hold(["sh", "-c", LOCK, "sh", path, owner])
    if lock.line == "locked":
        return lock

    pid = "PROCESS"
    match = re.search(r"\(process (\d+)\)", lock.line)
    if match:
        pid = match[1]
    raise NotReadyError(
        "another command is changing these hosts",
        where=f"{connection.address.host}: {lock.line}",
        hint="Wait for it, and repeat this one. If the machine that it runs on is gone, end that "
        f"process: ssh {connection.address} sudo kill {pid}",
    )
