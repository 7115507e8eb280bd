"""A port here that ends at a port of another host's loopback, for as long as this process lives."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from trainyard.seams import processes
from trainyard.seams.ssh_kept import KeptSsh

# Its own connection: one that the user's configuration shares would keep the port open after us.
ALONE = ("-o", "ControlMaster=no", "-o", "ControlPath=none")

_ports: dict[tuple[str, int], int] = {}
_lock = threading.Lock()


def local_port(address: str, port: int, environ: Mapping[str, str]) -> int:
    """Return the port here that ends at 127.0.0.1:PORT of ssh://user@host; the same one for the same question.

    Raises PrerequisiteError if ssh cannot get there.
    """
    with _lock:
        if (address, port) not in _ports:
            here = processes.free_ports(1)[0]
            KeptSsh(address, (*ALONE, "-L", f"127.0.0.1:{here}:127.0.0.1:{port}"), environ).start()
            _ports[address, port] = here
        return _ports[address, port]
