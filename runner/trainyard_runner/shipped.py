"""What Ray carries to other nodes: functions sent by value, which bring the runner with them.

Nothing here may use the package at module level: on a worker it is not there yet. `runner` and
`job` are (name, [reference to the zip]); a node fetches each once.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

Package = tuple[str, list[Any]]


def unpacked(package: Package) -> Path:
    """Return where a package is on this node; the first to ask fetches and unpacks it."""
    import io
    import shutil
    import tempfile
    import zipfile

    import ray

    name, references = package
    home = Path(
        ray._private.worker.global_worker.node.get_session_dir_path(), "trainyard", "packages"
    )
    place = home / name.removesuffix(".zip")
    if place.is_dir():
        return place

    home.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f"{name}.", dir=home))
    with zipfile.ZipFile(io.BytesIO(ray.get(references[0]))) as archive:
        for member in archive.infolist():
            path = archive.extract(member, part)
            mode = member.external_attr >> 16
            if mode & 0o777 and not member.is_dir():
                Path(path).chmod(mode & 0o777)

    try:
        part.rename(place)
    except OSError:
        shutil.rmtree(part)  # another worker of this node was quicker

    return place


def attempts(
    orders: list[dict[str, Any]], runner: Package, job: Package | None
) -> Iterator[list[tuple[int, Any]]]:
    _bring(runner)
    from trainyard_runner.node import on_node

    yield from on_node.attempts(orders, job)


def facts(question: dict[str, Any], runner: Package) -> Any:
    """Look at the node; return what was found, and some bytes that others can fetch."""
    _bring(runner)
    from trainyard_runner.node import facts as look

    return look.gather(question), bytes(question["bytes"])


def own_gpu(question: dict[str, Any], runner: Package) -> Any:
    """Say which GPU this task sees, while every other GPU of the node is held by such a task."""
    _bring(runner)
    from trainyard_runner import each_gpu

    return each_gpu.look(question)


def fetch(references: dict[str, list[Any]], timeout: float, runner: Package) -> Any:
    """Fetch other nodes' bytes; return MB/s, or what went wrong, for each."""
    _bring(runner)
    from trainyard_runner.node import facts as look

    return look.fetch(references, timeout)


def _bring(runner: Package) -> None:
    import sys

    place = str(unpacked(runner))
    if place not in sys.path:
        sys.path.insert(0, place)
