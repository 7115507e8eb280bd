"""A registry of the bed without TLS: the engine's images, where the bed's hosts can pull them.

The registries of all beds share their data, which are kept: compressing Ray's image takes twenty
seconds of a core.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request

from tests.bed import images
from tests.bed.engine import BedEngine
from tests.bed.hosts import LABEL
from tests.bed.places import CACHE

# The data that all of the bed's registries share.
KEPT = CACHE / "published"
MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"


def publish(engine: BedEngine, address: str, *names: str, owner: str) -> None:
    """Push images under their own names to the registry at `address`.

    The registry is started if it does not run yet. The engine pushes through loopback, which every
    Docker engine trusts without TLS.
    """
    port = address.rpartition(":")[2]
    container = container_of(address)
    if engine.docker("inspect", container, check=False).returncode != 0:
        KEPT.mkdir(exist_ok=True)
        named = ("--name", container, "--label", f"{LABEL}={owner}")
        engine.docker(
            "run",
            "-d",
            *named,
            "-p",
            f"{port}:5000",
            "-v",
            f"{KEPT}:/var/lib/registry",
            images.REGISTRY,
        )

    _wait(f"http://{address}/v2/")
    for name in names:
        if not _holds(engine, address, name):
            _push(engine, f"127.0.0.1:{port}/{name}", name)


def container_of(address: str) -> str:
    return f"trainyard-bed-registry-{address.rpartition(':')[2]}"


def _holds(engine: BedEngine, address: str, name: str) -> bool:
    """Say whether the registry's image of this name is the same as the engine's."""
    repository, _, tag = name.rpartition(":")
    asked = urllib.request.Request(
        f"http://{address}/v2/{repository}/manifests/{tag}", headers={"Accept": MANIFEST}
    )
    try:
        with urllib.request.urlopen(asked, timeout=10) as answer:
            held = json.load(answer)["config"]["digest"]
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return False
        raise

    return bool(
        held == engine.docker("image", "inspect", "--format", "{{.Id}}", name).stdout.strip()
    )


def _push(engine: BedEngine, target: str, name: str) -> None:
    engine.docker("tag", name, target)
    try:
        # An image with torch takes minutes of a core.
        engine.docker("push", target, seconds=1800)
    finally:
        engine.docker("rmi", target)


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
