"""A TCP proxy whose connections can be slowed or cut, stopped and started at will."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from urllib.parse import urlsplit


class Proxy:
    """Passes bytes between a fixed local port and a target, from `start` to `cut`.

    `rate` limits the bytes per second from the target, for each connection; None means no limit.
    `brought` counts all bytes from the target so far.
    """

    def __init__(self, target: str, *, host: str = "127.0.0.1", rate: float | None = None) -> None:
        parts = urlsplit(target)
        self._target = (parts.hostname or "127.0.0.1", parts.port or 80)
        self._host = host
        self.rate = rate
        self.brought = 0
        self._listener: socket.socket | None = None
        self._open: set[socket.socket] = set()
        self._changing = threading.Lock()
        self.port = 0
        self.connections = 0

    @property
    def address(self) -> str:
        return f"http://{self._host}:{self.port}"

    def start(self) -> None:
        """Accept connections, on the same port as before."""
        listener = socket.create_server((self._host, self.port), reuse_port=False)
        self.port = listener.getsockname()[1]
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def cut(self) -> None:
        """Drop every connection and accept no more."""
        with self._changing:
            listener, self._listener = self._listener, None
            cut = list(self._open)
            self._open.clear()
        if listener:
            # close() alone would leave the accept call waiting.
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        for one in cut:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return

            self.connections += 1
            try:
                server = socket.create_connection(self._target)
            except OSError:
                client.close()
                continue

            with self._changing:
                if self._listener is not listener:
                    # The proxy was cut while this connection was made.
                    client.close()
                    server.close()
                    return
                self._open |= {client, server}

            for one, other, passed in (
                (client, server, self._nothing),
                (server, client, self._wait),
            ):
                threading.Thread(
                    target=self._pass_on, args=(one, other, passed), daemon=True
                ).start()

    def _nothing(self, length: int) -> None:
        """Do not limit the bytes from client to target."""

    def _wait(self, length: int) -> None:
        self.brought += length
        if self.rate:
            time.sleep(length / self.rate)

    def _pass_on(
        self, one: socket.socket, other: socket.socket, passed: Callable[[int], None]
    ) -> None:
        with contextlib.suppress(OSError):
            while chunk := one.recv(65536):
                other.sendall(chunk)
                passed(len(chunk))
        for each in (one, other):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
