"""Ports of this machine that end in pods, for as long as this process lives.

Each connection here becomes a connection of its own to the pod that is meant at that moment: a pod that was replaced,
an API server that was away, a proxy that closed an idle connection cost the connections that were open, and no other.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from trainyard.seams.forwarding import LOOPBACK, Forward, last_error, loopback, shared
from trainyard.seams.kube import streams
from trainyard.seams.kube.api import Kube
from trainyard.seams.kube.types import POD

__all__ = ["LOOPBACK", "forward", "last_error"]

PART = 64 * 1024
DATA, COMPLAINT = 0, 1


def forward(kube: Kube, *, namespace: str, find: Callable[[], str | None], port: int, what: str) -> int:
    """Return a port of 127.0.0.1 that ends at a port of the pod that `find` names when somebody connects.

    `what` is what the pod is called in messages, and with the other arguments tells forwards apart.
    """

    def serve(local: socket.socket) -> str:
        from websocket import WebSocketException

        pod = find()
        if pod is None:
            return f"{what} has no pod that runs in namespace {namespace}"
        path = POD.path(namespace, pod, part="portforward")
        stream: Any = streams.connect(kube.transport, path, [("ports", str(port))])
        try:
            return _relay(local, stream)
        except (OSError, WebSocketException):
            # Whoever uses the port sees the end.
            return ""
        finally:
            with suppress(Exception):
                stream.shutdown()

    return int(shared((kube.access, namespace, what, port), lambda: Forward(loopback(), serve)).address)


def _relay(local: socket.socket, stream: Any) -> str:
    """Pass bytes both ways until one side ends; return what the kubelet complained about.

    One thread does all of it, because a TLS connection must not be used by two. A side that does not take what there is
    for it holds up the other one as well, so that memory does not grow with what is sent.
    """
    local.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream.settimeout(None)
    poll = select.poll()
    poll.register(local, select.POLLIN)
    poll.register(stream.sock, select.POLLIN)
    # The first message of each channel repeats the port's number.
    greeted: set[int] = set()
    while True:
        # TLS may have decrypted more than was read.
        pending = stream.is_ssl() and stream.sock.pending()
        ready = {stream.sock.fileno()} if pending else {number for number, _ in poll.poll()}
        if local.fileno() in ready:
            content = local.recv(PART)
            if not content:
                # The protocol has no end of one direction only.
                return ""
            stream.send_binary(bytes([DATA]) + content)
        if stream.sock.fileno() in ready:
            channel, content = _message(stream)
            if channel is None:
                return ""
            if channel in greeted and channel == COMPLAINT:
                return content.decode(errors="replace")
            if channel in greeted:
                local.sendall(content)
            greeted.add(channel)


def _message(stream: Any) -> tuple[int | None, bytes]:
    """Return the next message, and its channel: -1 for a ping, None at the end."""
    from websocket import ABNF

    opcode, content = stream.recv_data(control_frame=True)
    if opcode == ABNF.OPCODE_CLOSE:
        return None, b""
    return (content[0], content[1:]) if opcode == ABNF.OPCODE_BINARY and content else (-1, b"")
