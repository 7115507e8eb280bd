"""Storage for Ray Train and Ray Tune on the node of their script, if nodes share no disk.

    RunConfig(storage_path=os.environ["TRAINYARD_CHECKPOINT"], storage_filesystem=home.filesystem())

Ray needs a `storage_path` that every node reaches. TRAINYARD_CHECKPOINT and TRAINYARD_OUTPUT are
directories on one node: Ray's workers read and write them through an actor on that node. Each file
is sent as one object of Ray. For checkpoints of many gigabytes, use storage that the nodes share.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import pyarrow.fs
import ray
from fsspec import AbstractFileSystem
from fsspec.implementations.local import LocalFileSystem
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy


@ray.remote(num_cpus=0)
class Keeper:
    """An actor that reads and writes the files of its node."""

    def __init__(self) -> None:
        self._files = LocalFileSystem()

    def ask(self, method: str, *words: Any, **named: Any) -> Any:
        return getattr(self._files, method)(*words, **named)

    def write(self, path: str, content: bytes) -> None:
        """Write a file atomically."""
        part = Path(f"{path}.part")
        part.write_bytes(content)
        part.replace(path)


class Home(AbstractFileSystem):
    """An fsspec file system with the files of the keeper's node."""

    protocol = "home"
    cachable = False

    def __init__(self, keeper: str, **options: Any) -> None:
        super().__init__(keeper, **options)
        self.keeper = keeper

    def _ask(self, method: str, *words: Any, **named: Any) -> Any:
        return ray.get(ray.get_actor(self.keeper).ask.remote(method, *words, **named))

    def ls(self, path: str, detail: bool = True, **_: Any) -> Any:
        return self._ask("ls", path, detail=detail)

    def info(self, path: str, **_: Any) -> Any:
        return self._ask("info", path)

    def mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        self._ask("mkdir", path, create_parents=create_parents)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        self._ask("makedirs", path, exist_ok=exist_ok)

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        self._ask("rm", path, recursive=recursive, maxdepth=maxdepth)

    def mv(self, path1: str, path2: str, **_: Any) -> None:
        self._ask("mv", path1, path2)

    def cp_file(self, path1: str, path2: str, **_: Any) -> None:
        self._ask("cp_file", path1, path2)

    def _open(self, path: str, mode: str = "rb", **_: Any) -> io.BytesIO:
        if mode == "rb":
            return io.BytesIO(self._ask("cat_file", path))
        return _Written(self.keeper, path)


class _Written(io.BytesIO):
    """A file in memory, which `close` sends to the keeper."""

    def __init__(self, keeper: str, path: str) -> None:
        super().__init__()
        self._keeper = keeper
        self._path = path

    def close(self) -> None:
        if not self.closed:
            ray.get(ray.get_actor(self._keeper).write.remote(self._path, self.getvalue()))
        super().close()


def filesystem() -> pyarrow.fs.PyFileSystem:
    """Make a file system of this node's files, for workers on any node.

    Call `ray.init()` first. The actor behind the file system ends with the script.
    """
    name = f"keeper of {os.environ.get('TRAINYARD_ATTEMPT_ID', os.getpid())}"
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    _keepers.append(Keeper.options(name=name, scheduling_strategy=here).remote())
    return pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(Home(name)))


# References to the actors: Ray ends an actor without any reference.
_keepers: list[Any] = []
