"""Frames of JSON, which a worker and its guard exchange over a socket."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

_LENGTH = struct.Struct("!I")
HEAD_BYTES = _LENGTH.size


def pack(message: dict[str, Any]) -> bytes:
    """Return a message as one frame: the body's size, then the body as JSON."""
    body = json.dumps(message).encode()
    return _LENGTH.pack(len(body)) + body


def body_size(head: bytes) -> int:
    return int(_LENGTH.unpack(head)[0])


def exactly(connection: socket.socket, size: int) -> bytes:
    """Return the next `size` bytes. Raises EOFError at an earlier end."""
    received = b""
    while len(received) < size:
        part = connection.recv(size - len(received))
        if not part:
            raise EOFError
        received += part
    return received
