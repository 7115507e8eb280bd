"""A port here that ends at a port of another host's loopback: an ssh of our own, started again when it breaks.

It ends with this process, however that ends: ssh runs `cat` on the other side, which ends with our end of its input.
"""

from __future__ import annotations

import atexit
import subprocess
import threading
import time
from collections.abc import Mapping

from trainyard.errors import PrerequisiteError
from trainyard.seams import processes, ssh

READY = "trainyard-tunnel-ready"
READY_SECONDS = 20.0
# How long to wait before the next try; a host that restarts takes a minute.
PAUSES = (0.2, 0.5, 1.0, 2.0, 5.0)
OPTIONS = (
    # Our own connection: one that the user's configuration shares would keep the port open after us.
    *("-o", "ControlMaster=no", "-o", "ControlPath=none"),
    *("-o", "ExitOnForwardFailure=yes", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"),
)

_open: dict[tuple[str, int], _Tunnel] = {}
_lock = threading.Lock()


def local_port(address: str, port: int, environ: Mapping[str, str]) -> int:
    """Return the port here that ends at 127.0.0.1:PORT of ssh://user@host; the same one for the same question.

    Raises PrerequisiteError if ssh cannot get there.
    """
    with _lock:
        tunnel = _open.get((address, port))
        if tunnel is None:
            tunnel = _Tunnel(address, port, environ)
            tunnel.start()
            _open[address, port] = tunnel
    return tunnel.local_port


class _Tunnel:
    """One ssh after the other, until this process ends."""

    def __init__(self, address: str, port: int, environ: Mapping[str, str]) -> None:
        self.local_port = processes.free_ports(1)[0]
        self._address = address
        forward = f"127.0.0.1:{self.local_port}:127.0.0.1:{port}"
        self._command = [*ssh.command(address, *OPTIONS, "-L", forward), f"echo {READY}; exec cat"]
        self._environ = dict(environ)
        self._ready = threading.Event()
        self._said: list[str] = []
        self._closed = False
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Open it, and wait until it is open."""
        self._process = self._connect()
        threading.Thread(target=self._supervise, daemon=True).start()
        atexit.register(self.close)
        give_up = time.monotonic() + READY_SECONDS
        while not self._ready.wait(0.05):
            if self._process.poll() is not None or time.monotonic() > give_up:
                self.close()
                raise self._refused()

    def close(self) -> None:
        """End it."""
        self._closed = True
        if self._process and self._process.poll() is None:
            self._process.terminate()
            self._process.wait()

    def _refused(self) -> PrerequisiteError:
        return ssh.refused(self._address, self._said)

    def _connect(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self._command,
            env=self._environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            # Ctrl-C on the terminal is for us: a run that it stops still needs its way to the cluster.
            start_new_session=True,
        )

    def _supervise(self) -> None:
        failures = 0
        while not self._closed and self._process:
            for line in self._process.stdout or ():
                self._heard(line.strip())
                failures = 0 if self._ready.is_set() else failures
            self._process.wait()
            if self._closed or not self._ready.is_set():
                return
            time.sleep(PAUSES[min(failures, len(PAUSES) - 1)])
            failures += 1
            if not self._closed:
                self._process = self._connect()

    def _heard(self, line: str) -> None:
        if line == READY:
            self._ready.set()
        elif line:
            self._said = [*self._said[-20:], line]
