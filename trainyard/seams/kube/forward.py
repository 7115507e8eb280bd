"""Ports of this machine that end in pods, for as long as this process lives.

Each connection here becomes a connection of its own to the pod that is meant at that moment: a pod that was replaced,
an API server that was away, a proxy that closed an idle connection cost the connections that were open, and no other.
"""

from __future__ import annotations

import select
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from trainyard.seams.forwarding import LOOPBACK, Forward, last_error, loopback, shared
from trainyard.seams.kube import streams
from trainyard.seams.kube.api import Kube
from trainyard.seams.kube.errors import Request
from trainyard.seams.kube.types import POD

__all__ = ["LOOPBACK", "forward", "last_error"]

# The most that waits for one side.
ROOM = 256 * 1024
PART = 64 * 1024
DATA, COMPLAINT = 0, 1
_LATER = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


def forward(kube: Kube, *, namespace: str, find: Callable[[], str | None], port: int, what: str) -> int:
    """Return a port of 127.0.0.1 that ends at a port of the pod that `find` names when somebody connects.

    `what` is what the pod is called in messages, and with the other arguments tells forwards apart.
    """

    def serve(local: socket.socket) -> str:
        local.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        pod = find()
        if pod is None:
            return f"{what} has no pod that runs in namespace {namespace}"
        path = POD.path(namespace, pod, part="portforward")
        request = Request("get", POD, pod, namespace, part="portforward")
        stream: Any = streams.connect(kube.transport, path, [("ports", str(port))], request)
        try:
            relay = Relay(local, stream)
            relay.run()
            return relay.complaint
        finally:
            with suppress(Exception):
                stream.shutdown()

    return int(shared((kube.access, namespace, what, port), lambda: Forward(loopback(), serve)).address)


class Relay:
    """Two connections, until one of them ends; `complaint` is what the kubelet said about the port then.

    Bytes go both ways as fast as the slower side takes them. One thread does all of it, because a TLS connection
    must not be used by two. Nothing is read from a side while the other one has not taken what is there, so that memory
    does not grow with what is sent.
    """

    def __init__(self, local: socket.socket, stream: Any) -> None:
        self.complaint = ""
        self._local = local
        self._stream = stream
        self._remote: socket.socket = stream.sock
        self._to_local = bytearray()
        self._to_remote = bytearray()
        self._greeted: set[int] = set()
        self._ended = False
        local.setblocking(False)
        # The library tells apart a whole frame and a part of one for a socket that does not wait.
        stream.settimeout(0)

    def run(self) -> None:
        """Relay until either side ends; what was read by then is passed on, as far as it is taken at once."""
        while not self._ended:
            moved = self._from_remote() | self._from_local()
            moved |= self._write(self._remote, self._to_remote) | self._write(self._local, self._to_local)
            if not moved and not self._ended:
                self._wait()
        self._flush()

    def _from_remote(self) -> bool:
        moved = False
        while len(self._to_local) < ROOM and not self._ended:
            try:
                frame = self._stream.recv_frame()
            except _LATER:
                return moved
            except Exception:
                # However it broke: whoever waits on the other side must hear of the end.
                self._ended = True
                return moved
            moved = True
            self._take(frame.opcode, frame.data)
        return moved

    def _take(self, opcode: int, content: bytes) -> None:
        from websocket import ABNF

        if opcode == ABNF.OPCODE_CLOSE:
            self._ended = True
        elif opcode == ABNF.OPCODE_PING:
            self._to_remote += ABNF.create_frame(content, ABNF.OPCODE_PONG).format()
        elif opcode in (ABNF.OPCODE_BINARY, ABNF.OPCODE_CONT) and content:
            channel = content[0]
            if channel not in self._greeted:
                # The first message of each channel repeats the port's number.
                self._greeted.add(channel)
            elif channel == DATA:
                self._to_local += memoryview(content)[1:]
            elif channel == COMPLAINT:
                self.complaint += content[1:].decode(errors="replace")
                self._ended = True

    def _from_local(self) -> bool:
        from websocket import ABNF

        moved = False
        while len(self._to_remote) < ROOM and not self._ended:
            try:
                content = self._local.recv(PART)
            except _LATER:
                return moved
            except OSError:
                content = b""
            if not content:
                # The protocol has no end of one direction only.
                self._ended = True
                return moved
            moved = True
            self._to_remote += ABNF.create_frame(bytes([DATA]) + content, ABNF.OPCODE_BINARY).format()
        return moved

    def _write(self, to: socket.socket, waiting: bytearray) -> bool:
        if not waiting:
            return False
        try:
            sent = to.send(waiting)
        except _LATER:
            return False
        except OSError:
            self._ended = True
            return False
        del waiting[:sent]
        return sent > 0

    def _wait(self) -> None:
        """Sleep until there is something to read that there is room for, or room where something waits."""
        poll = select.poll()
        for side, to_side, to_other in (
            (self._local, self._to_local, self._to_remote),
            (self._remote, self._to_remote, self._to_local),
        ):
            events = (select.POLLIN if len(to_other) < ROOM else 0) | (select.POLLOUT if to_side else 0)
            if events:
                poll.register(side, events)
        poll.poll()

    def _flush(self) -> None:
        """Give each side a moment to take what is left for it."""
        for side, waiting in ((self._local, self._to_local), (self._remote, self._to_remote)):
            try:
                side.settimeout(1.0)
                if waiting:
                    side.sendall(waiting)
            except OSError:
                continue
