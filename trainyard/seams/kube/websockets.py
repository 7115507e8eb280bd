"""Websockets of the Kubernetes API: streams into pods, opened with the same login and trust as every other question."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast
from urllib.parse import unquote, urlencode, urlsplit

from trainyard.seams.addresses import keep_alive
from trainyard.seams.kube import refusals
from trainyard.seams.kube.refusals import Doing
from trainyard.seams.kube.transport import ANSWER_SECONDS, CONNECT_SECONDS, Session, Transport

if TYPE_CHECKING:
    from websocket import WebSocket

# The API's own framing: the first byte of each message is its channel (k8s.io/apimachinery, httpstream/wsstream).
PROTOCOL = "v4.channel.k8s.io"


def connect(transport: Transport, path: str, params: Sequence[tuple[str, str]], doing: Doing) -> WebSocket:
    """Open a websocket; its socket has a deadline. Raises KubeError, PrerequisiteError."""
    from websocket import WebSocketBadStatusException, WebSocketException

    target = f"{transport.access.server}{path}?{urlencode(params)}"
    session = transport.session()
    for last in (False, True):
        try:
            return _open(transport, session, target)
        except WebSocketBadStatusException as error:
            if error.status_code != 401 or last:
                body = error.resp_body or b""
                raise refusals.refused(error.status_code, body, doing, transport.access) from error
            session = transport.renew(session)
        except (WebSocketException, OSError) as error:
            raise refusals.unreachable(error, transport.access, session.configuration.proxy) from error
    raise AssertionError("the second try returns or raises")


def _open(transport: Transport, session: Session, target: str) -> WebSocket:
    from websocket import WebSocket

    made = WebSocket(sslopt=_tls_options(session), enable_multithread=False, skip_utf8_validation=True)
    made.connect(  # type: ignore[no-untyped-call]
        target.replace("http", "ws", 1),
        header=transport.authorization(session),
        subprotocols=[PROTOCOL],
        suppress_origin=True,
        timeout=CONNECT_SECONDS,
        redirect_limit=0,
        **_way(session, target),
    )
    made.settimeout(ANSWER_SECONDS)
    keep_alive(cast(socket.socket, made.sock))
    return made


def _way(session: Session, target: str) -> dict[str, object]:
    """Return how to get there: through the proxy that was decided on, or by a connection of our own.

    The library would look into the environment for a proxy otherwise, by other rules.
    """
    proxy = urlsplit(session.configuration.proxy or "")
    if proxy.hostname:
        login = (unquote(proxy.username), unquote(proxy.password or "")) if proxy.username else None
        return {
            "http_proxy_host": proxy.hostname,
            "http_proxy_port": proxy.port or 80,
            "http_proxy_auth": login,
            "http_no_proxy": ["-"],
        }
    parts = urlsplit(target)
    host, secure = parts.hostname or "", parts.scheme == "https"
    plain = socket.create_connection((host, parts.port or (443 if secure else 80)), timeout=CONNECT_SECONDS)
    if not secure or session.tls is None:
        return {"socket": plain}
    try:
        name = session.configuration.tls_server_name or host
        return {"socket": session.tls.wrap_socket(plain, server_hostname=name)}
    except BaseException:
        plain.close()
        raise


def _tls_options(session: Session) -> dict[str, object]:
    if session.tls is None:
        return {}
    options: dict[str, object] = {"context": session.tls, "cert_reqs": session.tls.verify_mode}
    options["check_hostname"] = session.tls.check_hostname
    if session.configuration.tls_server_name:
        options["server_hostname"] = session.configuration.tls_server_name
    return options
