"""The socket of a Docker engine on another host, here: every connection to it goes through one ssh.

Docker's clients start an ssh for each request, which costs a handshake every time (28 of them in a `cluster.plan`), and
may ask for a password or a host key on the terminal. Here they find an ordinary socket instead.
"""

from __future__ import annotations

import atexit
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from trainyard.seams import ssh
from trainyard.seams.ssh_kept import KeptSsh

# What Docker's own client runs there (docker/cli, cli/connhelper): it finds the engine as `docker` on that host does.
DIAL = ("docker", "system", "dial-stdio")
# What it complained about, beside the socket.
SAID = "said"

_sockets: dict[str, Path] = {}
_lock = threading.Lock()


def local_socket(address: str, environ: Mapping[str, str]) -> Path:
    """Return a socket here that is the engine's of ssh://user@host, for as long as this process lives.

    Raises PrerequisiteError if ssh cannot get there.
    """
    with _lock:
        if address not in _sockets:
            directory = Path(tempfile.mkdtemp(prefix="trainyard-ssh-"))
            atexit.register(shutil.rmtree, directory, ignore_errors=True)
            control = directory / "c"
            KeptSsh(address, ("-M", "-S", str(control), "-o", "ControlPersist=no"), environ).start()
            _sockets[address] = _listen(directory / "docker.sock", address, control, dict(environ))
        return _sockets[address]


def last_words(address: str) -> str:
    """Return the last thing that the other side said, such as that Docker is not installed there; "" if nothing."""
    path = _sockets.get(address)
    said = (path.parent / SAID).read_text(errors="replace").split("\n") if path else []
    return next((line.strip() for line in reversed(said) if line.strip()), "")


def _listen(path: Path, address: str, control: Path, environ: dict[str, str]) -> Path:
    command = [*ssh.command(address, "-S", str(control), "-o", "ControlMaster=no"), *DIAL]
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen(64)
    (path.parent / SAID).touch()
    threading.Thread(target=_serve, args=(server, command, environ, path.parent / SAID), daemon=True).start()
    return path


def _serve(server: socket.socket, command: list[str], environ: dict[str, str], said: Path) -> None:
    while True:
        connection, _ = server.accept()
        # The program gets the connection itself as input and output: nothing is copied here.
        with connection, suppress(OSError), said.open("ab") as errors:
            process = subprocess.Popen(
                command,
                env=environ,
                stdin=connection.fileno(),
                stdout=connection.fileno(),
                stderr=errors,
                start_new_session=True,
            )
            threading.Thread(target=process.wait, daemon=True).start()
