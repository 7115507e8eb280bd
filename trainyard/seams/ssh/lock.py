"""A lock on one host: only one command, from any machine, changes the hosts."""

from __future__ import annotations

import getpass
import re
import socket

from trainyard.errors import NotReadyError
from trainyard.seams.ssh.connection import Connection, Held

# `cat` holds the lock until the connection ends; then the kernel frees it.
LOCK = """umask 077; exec 2>&1 9>> "$1"
flock -n 9 || { cat "$1"; exit 1; }
echo "$2 since $(date '+%F %T %Z') (process $$)" > "$1"
echo locked
exec cat > /dev/null"""


def take(connection: Connection, path: str) -> Held:
    """Lock a file on the host while the returned object exists.

    Raises NotReadyError, with the owner's name, if another command has the
    lock.
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
        hint="Wait until that command ends, then repeat this one. If its machine is gone, end the "
        f"process that holds the lock: ssh {connection.address} sudo kill {pid}",
    )
