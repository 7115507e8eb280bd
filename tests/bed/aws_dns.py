"""The DNS server of the bed's VPC: it knows the names of instances only.

It forwards no question, so that none leaves the machine.
"""

from __future__ import annotations

import re
import socket
import struct

_NAME = re.compile(r"ip-(\d+)-(\d+)-(\d+)-(\d+)\.[a-z0-9-]+\.compute\.internal")
_ADDRESS, _NO_SUCH_NAME = 1, 3


def serve(address: str, port: int, network: str) -> None:
    """Answer until the process ends; `network` is the prefix of addresses, such as "10.201."."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind((address, port))
        while True:
            question, sender = server.recvfrom(4096)
            server.sendto(_answer(question, network), sender)


def _answer(question: bytes, network: str) -> bytes:
    """Return the response to a DNS question (RFC 1035, section 4)."""
    labels, place = [], 12
    while question[place]:
        labels.append(question[place + 1 : place + 1 + question[place]].decode())
        place += 1 + question[place]

    (kind,) = struct.unpack_from("!H", question, place + 1)
    match = _NAME.fullmatch(".".join(labels).lower())
    address = ".".join(match.groups()) if match else ""
    known = bool(address) and address.startswith(network)
    records = b""

    if known and kind == _ADDRESS:
        # 0xC00C points to the name in the question; the record is valid for 60 seconds.
        records = struct.pack("!HHHIH", 0xC00C, _ADDRESS, 1, 60, 4) + socket.inet_aton(address)

    flags = 0x8180 | (0 if known else _NO_SUCH_NAME)
    return (
        question[:2]
        + struct.pack("!HHHHH", flags, 1, bool(records), 0, 0)
        + question[12 : place + 5]
        + records
    )
