"""Bring home what tasks left behind: streamed, checked against its sha256, unpacked safely, whole or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, cast

from trainyard_runner import names, tree
from trainyard_runner.archive import LeftOut
from trainyard_runner.unpack import unpack

from trainyard.errors import OutsideError
from trainyard.results.state import RunState, Task
from trainyard.results.store import RunDirectory
from trainyard.seams.ray_api import FileMissingError, RayApi, RefusedError

_BLOCK = 1024 * 1024
_TRIES = 5
_AT_ONCE = 2
_WORTH_A_LINE = 50_000_000

Note = Callable[[str], None]


class Fetcher:
    """Fetches in the background while a run is followed."""

    def __init__(self, ray: RayApi, run: RunDirectory, *, note: Note) -> None:
        self._ray = ray
        self._run = run
        self._note = note
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="fetch")
        self._failed: list[OutsideError] = []
        self._begun: set[str] = set()

    def fetch(self, node_id: str, task: Task) -> None:
        """Begin to fetch a task's outputs, if it left any that are not here yet."""
        archive = task.output
        if archive is None or task.name in self._begun or self._run.outputs(task.name).exists():
            return
        self._begun.add(task.name)
        if archive["bytes"] >= _WORTH_A_LINE:
            self._note(f"{task.name}: fetching {archive['bytes'] / 1e6:.0f} MB of outputs")
        future = self._pool.submit(
            fetch_archive, self._ray, self._run, node_id, archive, target=self._run.outputs(task.name)
        )
        future.add_done_callback(lambda done: self._finished(task.name, done))

    def missing(self, node_id: str, state: RunState) -> None:
        """Begin to fetch whatever ended tasks left and is not here yet."""
        for task in state.tasks.values():
            self.fetch(node_id, task)

    def wait(self) -> tuple[OutsideError, ...]:
        """Wait for everything; return what could not be fetched."""
        self._pool.shutdown(wait=True)
        return tuple(self._failed)

    def abandon(self) -> None:
        """Start nothing more."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _finished(self, task: str, done: Future[list[LeftOut]]) -> None:
        if done.cancelled():
            return
        error = done.exception()
        if isinstance(error, OutsideError):
            self._failed.append(error)
        elif error is not None:
            self._failed.append(OutsideError(f"outputs of {task} could not be stored: {error}"))
        else:
            for left_out in done.result():
                self._note(f"{task}: left out of its outputs: {left_out}")


def fetch_archive(
    ray: RayApi, run: RunDirectory, node_id: str, archive: Mapping[str, Any], *, target: Path
) -> list[LeftOut]:
    """Fetch one archive into a directory that does not exist yet; return what its safety left out.

    Raises OutsideError when it cannot be had, or is not what the runner wrote.
    """
    filename = f"{names.run_directory(run.name)}/{archive['file']}"
    for again in range(_TRIES):
        try:
            return _fetch_once(ray, node_id, filename, archive, target)
        except (FileMissingError, RefusedError):
            raise
        except (OutsideError, tarfile.TarError) as error:
            last = error
            time.sleep(min(4.0, 0.5 * 2**again))
    raise OutsideError(
        f"outputs could not be fetched: {last}", where=filename, hint=f"Try again: invoke train.fetch {run.name}"
    ) from last


def _fetch_once(ray: RayApi, node_id: str, filename: str, archive: Mapping[str, Any], target: Path) -> list[LeftOut]:
    target.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f".{target.name[:40]}.", dir=target.parent))
    try:
        with ray.file(node_id, filename) as chunks:
            stream = _Hashed(chunks)
            left_out = unpack(cast("IO[bytes]", stream), part)
            stream.drain()
        _check(stream, archive, filename)
        part.chmod(0o755)
        part.rename(target)
    except BaseException:
        with contextlib.suppress(OSError):
            tree.remove(str(part))
        raise
    return left_out


def _check(stream: _Hashed, archive: Mapping[str, Any], filename: str) -> None:
    # A checkpoint is replaced while the run goes on: nobody says its hash beforehand.
    if "sha256" in archive and (stream.size, stream.sha256) != (archive["bytes"], archive["sha256"]):
        raise OutsideError(
            f"outputs arrived damaged: {stream.size} of {archive['bytes']} bytes, sha256 {stream.sha256[:12]} "
            f"instead of {archive['sha256'][:12]}",
            where=filename,
        )


class _Hashed:
    """Chunks as a file that can only be read on, hashed on the way."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._digest = hashlib.sha256()
        self._ready = bytearray()
        self.size = 0

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def read(self, count: int) -> bytes:
        """Return that many bytes; fewer only at the end."""
        while len(self._ready) < count and self._more():
            pass
        found = bytes(self._ready[:count])
        del self._ready[:count]
        return found

    def drain(self) -> None:
        """Read to the end: a tar stream may stop before its padding does."""
        self._ready.clear()
        while self._more():
            self._ready.clear()

    def _more(self) -> bool:
        chunk = next(self._chunks, None)
        if chunk is None:
            return False
        self._digest.update(chunk)
        self.size += len(chunk)
        self._ready += chunk
        return True
