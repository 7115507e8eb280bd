"""A company's HTTP proxy: it lets through what asks with CONNECT, and remembers what that was."""

from __future__ import annotations

import contextlib
import socket
import threading
from dataclasses import dataclass, field


@dataclass
class ConnectProxy:
    """A proxy on a port of loopback, as long as the test process lives; `asked` are the HOST:PORTs."""

    asked: list[str] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        """Return what HTTPS_PROXY is set to."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Accept connections."""
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            client, _ = listener.accept()
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            head += client.recv(1024)
        target = head.split()[1].decode()
        self.asked.append(target)
        host, _, port = target.rpartition(":")
        server = socket.create_connection((host, int(port)))
        client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        threading.Thread(target=_pass_on, args=(client, server), daemon=True).start()
        _pass_on(server, client)


def _pass_on(one: socket.socket, other: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while chunk := one.recv(65536):
            other.sendall(chunk)
    with contextlib.suppress(OSError):
        other.shutdown(socket.SHUT_RDWR)
