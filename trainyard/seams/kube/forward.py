"""Ports of this machine that end in pods, for as long as this process lives.

Each connection here becomes a connection of its own to the pod that is meant at that moment: a pod that was replaced,
an API server that was away, a proxy that closed an idle connection cost the connections that were open, and no other.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from trainyard.errors import TrainyardError
from trainyard.seams.kube import websockets
from trainyard.seams.kube.access import Access
from trainyard.seams.kube.api import Kube
from trainyard.seams.kube.refusals import Doing
from trainyard.seams.kube.relay import Relay
from trainyard.seams.kube.types import POD

if TYPE_CHECKING:
    from websocket import WebSocket

LOOPBACK = "127.0.0.1"
WAITING = 128

_forwards: dict[tuple[Access, str, str, int], Forward] = {}
_lock = threading.Lock()


def forward(kube: Kube, *, namespace: str, find: Callable[[], str | None], port: int, what: str) -> int:
    """Return a port of 127.0.0.1 that ends at a port of the pod that `find` names when somebody connects.

    `what` is what the pod is called in messages, and with the other arguments tells forwards apart: the same question
    has the same answer. When there is no such pod, or no way to it, a connection is accepted and closed at once, which
    clients understand sooner than silence; `trouble` then says why.
    """
    key = (kube.access, namespace, what, port)
    with _lock:
        if key not in _forwards:
            _forwards[key] = Forward(kube, namespace=namespace, find=find, port=port, what=what)
        return _forwards[key].here


def trouble(here: int) -> str:
    """Say why the newest connection to a forwarded port came to nothing; "" if it did not."""
    with _lock:
        return next((one.trouble for one in _forwards.values() if one.here == here), "")


class Forward:
    """One port here, and the thread that accepts connections to it."""

    def __init__(self, kube: Kube, *, namespace: str, find: Callable[[], str | None], port: int, what: str) -> None:
        self.trouble = ""
        self._kube = kube
        self._namespace = namespace
        self._find = find
        self._port = port
        self._what = what
        self._listener = socket.create_server((LOOPBACK, 0), backlog=WAITING)
        self.here: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, name=f"{what}:{port}", daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                local, _ = self._listener.accept()
            except OSError:
                # No more files may be opened at the moment.
                time.sleep(0.1)
                continue
            threading.Thread(target=self._serve, args=(local,), daemon=True).start()

    def _serve(self, local: socket.socket) -> None:
        """Connect one local connection, and close it whatever happens."""
        stream: Any = None
        try:
            local.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            stream = self._connect()
            if stream:
                relay = Relay(local, stream)
                relay.run()
                self.trouble = relay.complaint
        except TrainyardError as error:
            self.trouble = error.what
        except Exception as error:
            # Nobody would see it: it is told to whoever asks why nothing came.
            self.trouble = f"the way to {self._what} broke: {error}"
        finally:
            if stream is not None:
                with suppress(Exception):
                    stream.shutdown()
            local.close()

    def _connect(self) -> WebSocket | None:
        pod = self._find()
        if pod is None:
            self.trouble = f"{self._what} has no pod that runs in namespace {self._namespace}"
            return None
        return websockets.connect(
            self._kube.transport,
            POD.path(self._namespace, pod, part="portforward"),
            [("ports", str(self._port))],
            Doing("get", POD, pod, self._namespace, part="portforward"),
        )
