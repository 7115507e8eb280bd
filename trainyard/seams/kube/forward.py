"""Ports of this machine that end in pods, for as long as this process lives.

Each connection here becomes a connection of its own to the pod that is meant at that moment: a pod that was replaced,
an API server that was away, a proxy that closed an idle connection cost the connections that were open, and no other.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from trainyard.seams.forwarding import LOOPBACK, Forward, last_error, loopback, shared
from trainyard.seams.kube import streams
from trainyard.seams.kube.api import Kube
from trainyard.seams.kube.errors import Request
from trainyard.seams.kube.relay import Relay
from trainyard.seams.kube.types import POD

__all__ = ["LOOPBACK", "forward", "last_error"]


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
