"""Functions that Ray sends to other nodes by value.

Each function first fetches the runner's package. Imports from that package come
after the fetch: a new worker lacks it. `runner` and `job` are packages, (name,
[reference to the zip]); a node fetches each once.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

Package = tuple[str, list[Any]]


def unpacked(package: Package) -> Path:
    """Fetch and unpack a package, if missing here; return its directory."""
    import io
    import shutil
    import tempfile
    import zipfile

    import ray

    name, references = package
    session = ray._private.worker.global_worker.node.get_session_dir_path()
    home = Path(session, "trainyard", "packages")
    place = home / name.removesuffix(".zip")
    if place.is_dir():
        return place

    home.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f"{name}.", dir=home))
    try:
        with zipfile.ZipFile(io.BytesIO(ray.get(references[0]))) as archive:
            archive.extractall(part)
        part.rename(place)
    except OSError:
        # Another worker of this node may have been quicker.
        if not place.is_dir():
            raise
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return place


def attempts(
    orders: list[Any], runner: Package, job: Package | None
) -> Iterator[list[tuple[int, Any]]]:
    """Run the attempts in turn, and yield their messages.

    `orders` are `wire.order.Order`s. The messages are those of
    `node/on_node.py`.
    """
    _bring(runner)
    from trainyard_runner.node import on_node

    yield from on_node.attempts(orders, job)


def facts(question: dict[str, Any], runner: Package) -> Any:
    """Return the node's facts, and question["bytes"] bytes for transfers."""
    _bring(runner)
    from trainyard_runner.node import facts as node_facts

    return node_facts.gather(question), bytes(question["bytes"])


def own_gpu(question: dict[str, Any], runner: Package) -> Any:
    """Return this task's GPUs once all GPU tasks run (`each_gpu.look`)."""
    _bring(runner)
    from trainyard_runner import each_gpu

    return each_gpu.look(question)


def fetch(references: dict[str, list[Any]], timeout: float, runner: Package) -> Any:
    """Fetch other nodes' objects; return each node's MB/s or error."""
    _bring(runner)
    from trainyard_runner.node import facts as node_facts

    return node_facts.fetch(references, timeout)


def _bring(runner: Package) -> None:
    import sys

    place = str(unpacked(runner))
    if place not in sys.path:
        sys.path.insert(0, place)
