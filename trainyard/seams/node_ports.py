"""Local ports that forward to a node's ports through a program such as `ssh`.

The program is `docker exec`, `kubectl exec` or `ssh`. Each connection starts
it, and becomes its stdin and stdout, as with inetd. So a port works wherever a
shell works, with the same login.
"""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from trainyard_runner.wire.text import last_line

from trainyard.errors import RequestError
from trainyard.seams.forwarding import LOOPBACK, WAITING, Forward

# This script connects its stdin and stdout to a port of the node that it runs on, until the program
# at that port closes the connection.
RELAY = """
import os, socket, sys, threading

def send():
    while content := os.read(0, 65536):
        node.sendall(content)
    node.shutdown(socket.SHUT_WR)

try:
    node = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
except OSError as error:
    sys.exit(f"port {sys.argv[1]}: {error.strerror}")
threading.Thread(target=send, daemon=True).start()
while content := node.recv(65536):
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()
os._exit(0)
"""


def relay(port: int) -> str:
    """Return a command that connects stdin and stdout to a port of its node."""
    return shlex.join(["python3", "-c", RELAY, str(port)])


@contextmanager
def forwarded(
    words: Sequence[str], environ: Mapping[str, str], *, port: int, failed: Callable[[str], None]
) -> Iterator[int]:
    """Yield a port of 127.0.0.1; each connection runs the program `words`.

    `port` 0 means a free port. `failed` gets the last line of stderr of each
    program that exits with an error. Programs that still run when the context
    exits are terminated. Raises RequestError if the port is in use or
    forbidden.
    """
    running: list[subprocess.Popen[bytes]] = []

    def serve(local: socket.socket) -> str:
        with subprocess.Popen(
            words,
            stdin=local.fileno(),
            stdout=local.fileno(),
            stderr=subprocess.PIPE,
            env=environ,
            start_new_session=True,
        ) as program:
            running.append(program)
            _, complaint = program.communicate()

        running.remove(program)
        if program.returncode > 0:
            reason = last_line(complaint.decode(errors="replace"))
            failed(reason or f"exit code {program.returncode}")
        return ""

    try:
        listener = socket.create_server((LOOPBACK, port), backlog=WAITING)
    except OSError as error:
        if error.errno:
            reason = os.strerror(error.errno)
        else:
            reason = str(error)
        raise RequestError(
            f"port {port} of this machine cannot be used: {reason}",
            hint="Name another one: 16006:6006",
        ) from error

    try:
        # It listens until this process ends.
        forward = Forward(listener, serve)
        yield int(forward.address)
    finally:
        for program in list(running):
            with suppress(ProcessLookupError):
                program.terminate()
