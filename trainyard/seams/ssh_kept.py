"""An ssh of our own that is kept open: started again when it breaks, ended with this process, however that ends.

It runs `cat` on the other side, which ends when our end of its input does: also when we are killed.
"""

from __future__ import annotations

import atexit
import subprocess
import threading
import time
from collections.abc import Mapping

from trainyard.seams import programs, ssh

READY = "trainyard-ssh-ready"
READY_SECONDS = 20.0
# How long to wait before the next try; a host that restarts takes a minute.
PAUSES = (0.2, 0.5, 1.0, 2.0, 5.0)
ALIVE = ("-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3", "-o", "ExitOnForwardFailure=yes")


class KeptSsh:
    """One ssh to a host after the other, with the same options, until this process ends."""

    def __init__(self, address: str, options: tuple[str, ...], environ: Mapping[str, str]) -> None:
        programs.find("ssh", environ, hint="Install OpenSSH's client: sudo apt-get install openssh-client")
        self._address = address
        self._command = [*ssh.command(address, *ALIVE, *options), f"echo {READY}; exec cat"]
        self._environ = dict(environ)
        self._ready = threading.Event()
        self._said: list[str] = []
        self._closed = False
        self._process = self._connect()

    def start(self) -> None:
        """Wait until it is open. Raises PrerequisiteError with the reason if the host does not let us in."""
        supervisor = threading.Thread(target=self._supervise, daemon=True)
        supervisor.start()
        atexit.register(self.close)
        give_up = time.monotonic() + READY_SECONDS
        while not self._ready.wait(0.02):
            ended = self._process.poll() is not None
            if ended or time.monotonic() > give_up:
                self.close()
                # It reads what ssh said, to the end.
                supervisor.join(1.0)
                raise ssh.refused(self._address, self._said)

    def close(self) -> None:
        """End it."""
        self._closed = True
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait()

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
        while not self._closed:
            if self._listen():
                failures = 0
            if self._closed or not self._ready.is_set():
                return
            time.sleep(PAUSES[min(failures, len(PAUSES) - 1)])
            failures += 1
            if not self._closed:
                self._process = self._connect()

    def _listen(self) -> bool:
        """Read what ssh says until it ends; return whether it was open."""
        was_open = False
        for line in self._process.stdout or ():
            if line.strip() == READY:
                was_open = True
                self._ready.set()
            elif line.strip():
                self._said = [*self._said[-20:], line.strip()]
        self._process.wait()
        return was_open
