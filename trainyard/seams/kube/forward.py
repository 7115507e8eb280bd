"""Ports of this machine that forward to pods while this process lives.

Each connection to such a port looks up its pod, and opens its own connection to
the pod. So only open connections break when a pod is replaced, the API server
restarts or a proxy closes an idle connection.

A connection to a pod is a websocket with the login and TLS context of all other
requests. `kubernetes.stream` has no timeout and makes its own TLS context.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from trainyard.seams.addresses import keep_alive
from trainyard.seams.forwarding import LOOPBACK, Forward, last_error, loopback, shared
from trainyard.seams.kube import errors
from trainyard.seams.kube.api import Kube
from trainyard.seams.kube.transport import CONNECT_SECONDS, Session, Transport
from trainyard.seams.kube.types import POD

__all__ = ["LOOPBACK", "forward", "last_error"]

PART = 64 * 1024
# The API's own framing: the first byte of each message is its channel (k8s.io/apimachinery,
# httpstream/wsstream).
PROTOCOL = "v4.channel.k8s.io"
DATA = 0
COMPLAINT = 1


def forward(
    kube: Kube, *, namespace: str, find: Callable[[], str | None], port: int, what: str
) -> int:
    """Return a port of 127.0.0.1 that forwards to a port of a pod.

    `find` returns the pod's name for each connection; None if no such pod runs.
    `what` names the pod in messages. Calls with the same cluster, namespace,
    `what` and `port` return the same port.
    """

    def serve(local: socket.socket) -> str:
        from websocket import WebSocketException

        pod = find()
        if pod is None:
            return f"{what} has no pod that runs in namespace {namespace}"

        path = POD.path(namespace, pod, part="portforward")
        stream = _connect(kube.transport, path, port)
        try:
            complaint = _relay(local, stream)
            if "connection refused" in complaint:
                return f"{what} does not listen on port {port}"
            return complaint
        except (OSError, WebSocketException):
            # The client sees that its connection ended.
            return ""
        finally:
            with suppress(Exception):
                stream.shutdown()

    key = (kube.access, namespace, what, port)
    return int(shared(key, lambda: Forward(loopback(), serve)).address)


def _connect(transport: Transport, path: str, port: int) -> Any:
    """Open a websocket to a pod's port. Raises KubeError, PrerequisiteError."""
    from websocket import WebSocket, WebSocketBadStatusException, WebSocketException

    session = transport.session()
    tls = {"context": session.tls, "server_hostname": session.configuration.tls_server_name}
    stream: Any = WebSocket(sslopt=tls, enable_multithread=False, skip_utf8_validation=True)
    try:
        stream.connect(
            f"{transport.access.server}{path}?ports={port}".replace("http", "ws", 1),
            header=transport.authorization(session),
            subprotocols=[PROTOCOL],
            suppress_origin=True,
            timeout=CONNECT_SECONDS,
            redirect_limit=0,
            **_proxy(session),
        )
    except WebSocketBadStatusException as error:
        raise errors.refused(
            error.status_code, error.resp_body or b"", f"GET {path}", transport.access
        ) from error
    except (WebSocketException, OSError) as error:
        raise errors.unreachable(error, transport.access) from error

    keep_alive(stream.sock)
    return stream


def _relay(local: socket.socket, stream: Any) -> str:
    """Pass bytes until one side ends; return the kubelet's complaint or "".

    One thread serves both directions, because two must not use one TLS
    connection. If one side does not accept its bytes, both directions wait, so
    that memory does not fill.
    """
    local.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream.settimeout(None)
    poll = select.poll()
    poll.register(local, select.POLLIN)
    poll.register(stream.sock, select.POLLIN)
    # The first message of each channel repeats the port's number.
    greeted: set[int] = set()

    while True:
        # TLS may have decrypted bytes that are not read yet, and poll() does not see them.
        pending = stream.is_ssl() and stream.sock.pending()
        if pending:
            ready = {stream.sock.fileno()}
        else:
            ready = {number for number, _ in poll.poll()}

        if local.fileno() in ready:
            content = local.recv(PART)
            if not content:
                # The protocol cannot end one direction alone.
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
    """Return (channel, content) of the next message.

    The channel is None once the server closes the stream, and -1 for anything
    but data.
    """
    from websocket import ABNF

    opcode, content = stream.recv_data(control_frame=True)
    if opcode == ABNF.OPCODE_CLOSE:
        return None, b""
    if opcode == ABNF.OPCODE_BINARY and content:
        return (content[0], content[1:])
    return (-1, b"")


def _proxy(session: Session) -> dict[str, object]:
    """Return websocket-client's options for the `kubernetes` library's proxy.

    By itself, websocket-client would choose a proxy by other rules.
    """
    proxy = session.client.pool_manager.proxy
    if proxy is None:
        return {"http_no_proxy": ["*"]}
    return {"http_proxy_host": proxy.host, "http_proxy_port": proxy.port, "http_no_proxy": ["-"]}
