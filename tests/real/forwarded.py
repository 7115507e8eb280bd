"""A server on a node's own loopback, reached through `cluster.forward`."""

from __future__ import annotations

import hashlib
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from subprocess import Popen

import httpx

from tests.real.yard import Yard

PORT = 16006
SERVES = f"""
mkdir -p /tmp/served && cd /tmp/served && head -c 3000000 /dev/urandom > file && sha256sum file
(setsid python3 -m http.server {PORT} --bind 127.0.0.1 > /dev/null 2>&1 &)
until (: < /dev/tcp/127.0.0.1/{PORT}) 2> /dev/null; do sleep 0.1; done
"""


@contextmanager
def forwarding(yard: Yard, node: str, port: int = PORT) -> Iterator[tuple[str, Popen[str]]]:
    """Run `cluster.forward`; give its address and the command, which Ctrl-C ends afterwards."""
    command = yard.start("cluster.forward", node, f"0:{port}")
    assert command.stdout
    try:
        address = command.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:"), address + command.stdout.read()
        yield address, command
    finally:
        command.send_signal(signal.SIGINT)
        command.wait(30)


def assert_forwarded(yard: Yard, node: str) -> None:
    """Assert that a file of a server on the node arrives whole, for four clients at once."""
    digest = yard.run("cluster.shell", node, "--command", SERVES).stdout.split()[0]
    with forwarding(yard, node) as (address, _), ThreadPoolExecutor(4) as pool:
        answers = list(
            pool.map(lambda _: httpx.get(f"{address}/file", trust_env=False, timeout=60), range(4))
        )
    assert {hashlib.sha256(answer.content).hexdigest() for answer in answers} == {digest}
