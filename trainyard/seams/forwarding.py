"""Local ports and sockets that forward connections while this process lives.

Each connection has its own thread. A connection that cannot be served is closed
at once, so that its client does not wait; `last_error` gives the reason.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Hashable
from typing import Any

from trainyard.errors import TrainyardError

LOOPBACK = "127.0.0.1"
WAITING = 128

_forwards: dict[Hashable, Forward] = {}
_lock = threading.Lock()


def shared(key: Hashable, make: Callable[[], Forward]) -> Forward:
    """Return the forward with this key, made at the first call."""
    with _lock:
        if key not in _forwards:
            _forwards[key] = make()
        return _forwards[key]


def last_error(address: object) -> str:
    """Return why the last connection to a port or path failed, or ""."""
    with _lock:
        for forward in _forwards.values():
            if forward.address == address:
                return forward.last_error
        return ""


def loopback() -> socket.socket:
    return socket.create_server((LOOPBACK, 0), backlog=WAITING)


class Forward:
    """A listener at `address`, a port or a path.

    `serve` handles one connection. It returns why the connection failed, "" for
    success, or raises.
    """

    def __init__(self, listener: socket.socket, serve: Callable[[socket.socket], str]) -> None:
        self.last_error = ""
        name: Any = listener.getsockname()
        self.address: Any = name if isinstance(name, str) else name[1]
        self._listener = listener
        self._serve = serve
        threading.Thread(target=self._accept, name=f"forward {self.address}", daemon=True).start()

    def _accept(self) -> None:
        while True:
            local, _ = self._listener.accept()
            threading.Thread(target=self._attend, args=(local,), daemon=True).start()

    def _attend(self, local: socket.socket) -> None:
        with local:
            try:
                self.last_error = self._serve(local)
            except TrainyardError as error:
                self.last_error = error.what
            except Exception as error:
                # A thread can report an error nowhere else.
                self.last_error = f"the connection broke: {error}"
