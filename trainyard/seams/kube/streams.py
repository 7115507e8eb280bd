"""Streams into pods: websockets of the Kubernetes API, with the login and trust of every other question.

`kubernetes.stream` opens them without any timeout and by another TLS context, and fails at the first command that
cannot be started; so the websocket is ours.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlencode

from trainyard.errors import NotReadyError
from trainyard.seams.addresses import keep_alive
from trainyard.seams.kube import errors
from trainyard.seams.kube.errors import GoneError, KubeError
from trainyard.seams.kube.transport import ANSWER_SECONDS, CONNECT_SECONDS, Session, Transport
from trainyard.seams.kube.types import POD
from trainyard.seams.programs import Ran

if TYPE_CHECKING:
    from websocket import WebSocket

# The API's own framing: the first byte of each message is its channel (k8s.io/apimachinery, httpstream/wsstream).
PROTOCOL = "v4.channel.k8s.io"
STDOUT, STDERR, RESULT = 1, 2, 3


def connect(transport: Transport, path: str, params: Sequence[tuple[str, str]]) -> WebSocket:
    """Open a websocket; its socket has a deadline. Raises KubeError, PrerequisiteError."""
    from websocket import WebSocket, WebSocketBadStatusException, WebSocketException

    session = transport.session()
    tls = {"context": session.tls, "server_hostname": session.configuration.tls_server_name}
    made = WebSocket(sslopt=tls, enable_multithread=False, skip_utf8_validation=True)
    try:
        made.connect(  # type: ignore[no-untyped-call]
            f"{transport.access.server}{path}?{urlencode(params)}".replace("http", "ws", 1),
            header=transport.authorization(session),
            subprotocols=[PROTOCOL],
            suppress_origin=True,
            timeout=CONNECT_SECONDS,
            redirect_limit=0,
            **_proxy(session),
        )
    except WebSocketBadStatusException as error:
        raise errors.refused(error.status_code, error.resp_body or b"", f"GET {path}", transport.access) from error
    except (WebSocketException, OSError) as error:
        raise errors.unreachable(error, transport.access) from error
    made.settimeout(ANSWER_SECONDS)
    keep_alive(cast(socket.socket, made.sock))
    return made


def run_in(
    transport: Transport, pod: str, command: Sequence[str], *, namespace: str, container: str, seconds: float
) -> Ran:
    """Run a command and return how it ended. Raises NotReadyError if it still runs after `seconds`."""
    from websocket import ABNF, WebSocketException, WebSocketTimeoutException

    where = f"container {container} of pod {pod} in namespace {namespace}"
    params = [("container", container), ("stdout", "true"), ("stderr", "true")]
    params += [("command", word) for word in command]
    give_up = time.monotonic() + seconds
    stream: Any = connect(transport, POD.path(namespace, pod, part="exec"), params)
    parts: dict[int, bytes] = {STDOUT: b"", STDERR: b"", RESULT: b""}
    try:
        while True:
            stream.settimeout(max(give_up - time.monotonic(), 0.01))
            opcode, content = stream.recv_data(control_frame=True)
            if opcode == ABNF.OPCODE_CLOSE:
                break
            if content and content[0] in parts:
                parts[content[0]] += content[1:]
    except WebSocketTimeoutException as error:
        raise NotReadyError(f"{command[0]} did not end within {seconds:.0f} s", where=where) from error
    except (WebSocketException, OSError) as error:
        if not parts[RESULT]:
            raise GoneError(f"the connection to {command[0]} in a pod broke before it ended", where=where) from error
    finally:
        stream.shutdown()
    stdout, stderr = (parts[channel].decode(errors="replace") for channel in (STDOUT, STDERR))
    return Ran(_exit_code(parts[RESULT], where), stdout, stderr)


def _proxy(session: Session) -> dict[str, object]:
    """Return the proxy that the library decided on; websockets would look for one by rules of their own."""
    proxy = session.client.pool_manager.proxy
    if proxy is None:
        return {"http_no_proxy": ["*"]}
    return {"http_proxy_host": proxy.host, "http_proxy_port": proxy.port, "http_no_proxy": ["-"]}


def _exit_code(result: bytes, where: str) -> int:
    """Return what the kubelet says about the end (k8s.io/kubelet, remotecommand: a Status, as JSON)."""
    status = json.loads(result or b"{}")
    if status.get("status") == "Success":
        return 0
    for cause in (status.get("details") or {}).get("causes") or []:
        if cause.get("reason") == "ExitCode":
            return int(cause["message"])
    raise KubeError(f"the command cannot be run: {status.get('message', 'no reason given')}", where=where)
