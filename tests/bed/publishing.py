"""A registry without TLS that belongs to a bed: images of its engine, where its hosts can pull them."""

from __future__ import annotations

import time
import urllib.error
import urllib.request

from tests.bed import images
from tests.bed.engine import BedEngine
from tests.bed.hosts import LABEL


def publish(engine: BedEngine, address: str, *names: str, owner: str) -> None:
    """Push images to the registry at `address`, which is started if it does not run yet; the name stays as it is.

    The engine pushes through loopback, which it trusts without TLS, as every Docker engine does.
    """
    port = address.rpartition(":")[2]
    container = container_of(address)
    if engine.docker("inspect", container, check=False).returncode != 0:
        label = f"{LABEL}={owner}"
        engine.docker("run", "-d", "--name", container, "--label", label, "-p", f"{port}:5000", images.REGISTRY)
    _wait(f"http://{address}/v2/")
    for name in names:
        here = f"127.0.0.1:{port}/{name}"
        engine.docker("tag", name, here)
        try:
            engine.docker("push", here)
        finally:
            engine.docker("rmi", here)


def container_of(address: str) -> str:
    """Return the name of the registry's container."""
    return f"trainyard-bed-registry-{address.rpartition(':')[2]}"


def _wait(url: str) -> None:
    give_up = time.monotonic() + 30
    while True:
        try:
            urllib.request.urlopen(url, timeout=2).close()
            return
        except (OSError, urllib.error.URLError):
            if time.monotonic() > give_up:
                raise
            time.sleep(0.2)
