"""Run a command in a container, to its end."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

from trainyard.errors import NotReadyError
from trainyard.seams.kube import refusals, websockets
from trainyard.seams.kube.errors import GoneError, KubeError
from trainyard.seams.kube.refusals import Doing
from trainyard.seams.kube.transport import Transport
from trainyard.seams.kube.types import POD, Ran

STDOUT, STDERR, RESULT = 1, 2, 3


def run_in(
    transport: Transport, pod: str, command: Sequence[str], *, namespace: str, container: str, seconds: float
) -> Ran:
    """Run a command and return how it ended. Raises NotReadyError if it still runs after `seconds`."""
    from websocket import WebSocketException, WebSocketTimeoutException

    doing = Doing("get", POD, pod, namespace, part="exec")
    params = [("container", container), ("stdout", "true"), ("stderr", "true")]
    params += [("command", word) for word in command]
    give_up = time.monotonic() + seconds
    stream: Any = websockets.connect(transport, POD.path(namespace, pod, part="exec"), params, doing)
    said: dict[int, bytes] = {STDOUT: b"", STDERR: b"", RESULT: b""}
    try:
        while _receive(stream, said, give_up - time.monotonic()):
            pass
    except WebSocketTimeoutException as error:
        raise NotReadyError(
            f"{command[0]} did not end within {seconds:.0f} s",
            where=f"container {container} of pod {pod} in namespace {namespace}",
        ) from error
    except (WebSocketException, OSError) as error:
        if not said[RESULT]:
            raise refusals.unreachable(error, transport.access, None) from error
    finally:
        stream.shutdown()
    stdout, stderr = (said[channel].decode(errors="replace") for channel in (STDOUT, STDERR))
    return Ran(_exit_code(said[RESULT], doing), stdout, stderr)


def _receive(stream: Any, said: dict[int, bytes], left: float) -> bool:
    """Add the next message to its channel; say whether there may be more."""
    from websocket import ABNF

    stream.settimeout(max(left, 0.01))
    opcode, content = stream.recv_data(control_frame=True)
    if opcode == ABNF.OPCODE_CLOSE:
        return False
    if opcode in (ABNF.OPCODE_BINARY, ABNF.OPCODE_TEXT) and content and content[0] in said:
        said[content[0]] += content[1:]
    return True


def _exit_code(result: bytes, doing: Doing) -> int:
    """Return what the kubelet says about the end (k8s.io/kubelet, remotecommand: a Status, as JSON)."""
    if not result:
        raise GoneError("the connection to a command in a pod broke before it ended", where=str(doing))
    status = json.loads(result)
    if status.get("status") == "Success":
        return 0
    for cause in (status.get("details") or {}).get("causes") or []:
        if cause.get("reason") == "ExitCode":
            return int(cause["message"])
    raise KubeError(f"the command cannot be run: {status.get('message', 'no reason given')}", where=str(doing))
