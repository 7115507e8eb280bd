"""Fetch archives of tasks' outputs and checkpoints, even during the run."""

from __future__ import annotations

import fcntl
import hashlib
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from trainyard_runner.wire import names, outputs, tree
from trainyard_runner.wire.archive import LeftOut
from trainyard_runner.wire.events import OutputsKept
from trainyard_runner.wire.unpack import unpack

from trainyard.dispatch import checkpoints
from trainyard.dispatch.checkpoints import Archive
from trainyard.errors import OutsideError
from trainyard.results import store
from trainyard.results.state import RunState, Task
from trainyard.results.store import RunDirectory
from trainyard.seams.ray_api import FileMissingError, RayApi, RefusedError
from trainyard.wording import named

_BLOCK = 1024 * 1024
_TRIES = 5
_AT_ONCE = 2
_WORTH_A_LINE = 50_000_000

Note = Callable[[str], None]


class UnwrittenError(OutsideError):
    """An archive arrived, and this machine could not write all its files."""

    def __init__(self, kind: str, task: str, lost: list[LeftOut], *, where: Path) -> None:
        listed = named([str(item) for item in lost])
        super().__init__(f"{kind} of {task} cannot be written here: {listed}", where=str(where))


@dataclass
class _Progress:
    """The progress of one fetcher with a task's outputs.

    `applied`: the number of the last archive that it has unpacked. `lost`:
    files that could not be written. While there are any, later archives do not
    count as fetched, so that the next command tries all of them again.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    applied: int = 0
    lost: list[LeftOut] = field(default_factory=list)


class Fetcher:
    """Fetches outputs and checkpoints in threads while a run is followed.

    Two threads fetch outputs, each task's archives in order. A third thread
    fetches checkpoints one by one, so outputs never wait for checkpoints.
    """

    def __init__(self, ray: RayApi, run: RunDirectory, *, note: Note) -> None:
        self._ray = ray
        self._run = run
        self._note = note
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="fetch")
        self._checkpoints = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._progress: dict[str, _Progress] = {}
        self._failed: dict[str, tuple[Task, OutsideError]] = {}
        self._without_checkpoint: dict[str, tuple[Task, OutsideError]] = {}

    def fetch(self, node_id: str, task: Task) -> None:
        if task.missing(self._run):
            self._pool.submit(self._bring, node_id, task)

    def fetch_checkpoints(
        self, node_id: str, state: RunState, *, among: Iterable[Task] | None = None
    ) -> None:
        for task in checkpoints.due(self._run, state, among=among):
            self._checkpoints.submit(self._bring_checkpoint, node_id, task)

    def wait(self) -> tuple[OutsideError, ...]:
        """Wait for the outputs in flight; return the errors of missing ones.

        No outputs can be fetched after this.
        """
        self._pool.shutdown(wait=True)
        # A later archive of the same task, which replaces the failed one, may have been fetched.
        failed = self._failed.values()
        return tuple(error for task, error in failed if task.missing(self._run))

    def wait_for_checkpoints(self) -> tuple[OutsideError, ...]:
        """Wait for checkpoints in flight; return the errors of missing ones.

        No checkpoint can be fetched after this.
        """
        self._checkpoints.shutdown(wait=True)
        failed = self._without_checkpoint.values()
        return tuple(error for task, error in failed if not checkpoints.is_here(self._run, task))

    def abandon(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._checkpoints.shutdown(wait=False, cancel_futures=True)

    def _bring(self, node_id: str, task: Task) -> None:
        try:
            self._bring_outputs(node_id, task)
        except OutsideError as error:
            self._failed[task.name] = (task, error)
        except Exception as error:  # other tasks are still fetched; `wait` returns the error
            what = f"outputs of {task.name} could not be stored: {error}"
            self._failed[task.name] = (task, OutsideError(what))

    def _bring_checkpoint(self, node_id: str, task: Task) -> None:
        try:
            fetch_checkpoint(self._ray, self._run, node_id, task, note=self._note)
        except OutsideError as error:
            self._without_checkpoint[task.name] = (task, error)
        except Exception as error:  # as in `_bring`; `wait_for_checkpoints` returns the error
            what = f"the checkpoint of {task.name} could not be stored: {error}"
            self._without_checkpoint[task.name] = (task, OutsideError(what))

    def _bring_outputs(self, node_id: str, task: Task) -> None:
        progress = self._progress.setdefault(task.name, _Progress())
        with progress.lock:
            for archive in task.missing(self._run):
                if archive.number > progress.applied:
                    self._fetch(node_id, task.name, archive, progress)
            if progress.lost:
                place = self._run.outputs(task.name)
                raise UnwrittenError("outputs", task.name, progress.lost, where=place)

    def _fetch(self, node_id: str, task: str, archive: OutputsKept, progress: _Progress) -> None:
        if archive.bytes >= _WORTH_A_LINE:
            self._note(f"{task}: fetching {archive.bytes / 1e6:.0f} MB of outputs")

        if archive.whole and not archive.each_attempt:
            progress.lost = []
        progress.lost = [item for item in progress.lost if item.name not in archive.removed]
        is_complete = not progress.lost
        for left_out in apply_archive(
            self._ray, self._run, node_id, task, archive, is_complete=is_complete
        ):
            self._note(f"{task}: left out of its outputs: {left_out}")
            if left_out.is_lost:
                progress.lost.append(left_out)
        progress.applied = archive.number


def apply_archive(
    ray: RayApi,
    run: RunDirectory,
    node_id: str,
    task: str,
    kept: OutputsKept,
    *,
    is_complete: bool = True,
) -> list[LeftOut]:
    """Fetch an archive, and apply it to a task's outputs, but only once.

    A `whole` archive replaces the outputs; any other has the changes since the
    previous archive. Returns the files that could not be written: if any is
    lost, or `is_complete` is false because one of an earlier archive is, the
    archive does not count as fetched. Raises OutsideError if the archive is
    damaged, or cannot be fetched.
    """
    place = run.outputs(task)
    place.parent.mkdir(parents=True, exist_ok=True)

    with store.number_file(place).open("a+", encoding="utf-8") as number:
        fcntl.flock(number, fcntl.LOCK_EX)  # another thread or command may fetch the same archive
        if kept.number <= store.fetched(place):
            return []

        if kept.each_attempt:
            target = place / f"attempt-{kept.attempt:d}"
        else:
            target = place

        archive = Archive(kept.file, kept.bytes, kept.sha256)
        with _spooled(ray, run, node_id, archive, at=place) as spool:
            if kept.whole:
                left_out = _unpacked(spool, target, beside=place)
            else:
                left_out = outputs.apply(_pieces(spool), target, removed=kept.removed)

        if is_complete and not any(item.is_lost for item in left_out):
            number.truncate(0)
            number.write(str(kept.number))

    return left_out


def fetch_checkpoint(
    ray: RayApi, run: RunDirectory, node_id: str, task: Task, *, note: Note
) -> None:
    """Fetch a task's last checkpoint, unless it is here; rename an older one.

    Raises OutsideError if the checkpoint is damaged, cannot be fetched, or
    cannot be written in full.
    """
    if task.checkpoint is None:
        return

    place = run.checkpoint(task.name)
    seq = task.checkpoint.seq
    place.parent.mkdir(parents=True, exist_ok=True)

    with store.number_file(place).open("a", encoding="utf-8") as number:
        fcntl.flock(number, fcntl.LOCK_EX)  # another command may fetch the same checkpoint
        if checkpoints.is_here(run, task):
            return

        size = checkpoints.size_of(task)
        if size >= _WORTH_A_LINE:
            note(f"{task.name}: fetching {size / 1e6:.0f} MB of its checkpoint")

        arrived = place.with_name(f".{place.name}.{seq}")
        if not arrived.exists():
            archive = checkpoints.archive_of(task)
            with _spooled(ray, run, node_id, archive, at=arrived) as spool:
                left_out = _unpacked(spool, arrived, beside=arrived)
            for file in left_out:
                note(f"{task.name}: left out of its checkpoint: {file}")

            lost = [file for file in left_out if file.is_lost]
            if lost:
                tree.remove(str(arrived))
                raise UnwrittenError("the checkpoint", task.name, lost, where=place)

        store.keep_checkpoint(run, task.name, arrived, seq=seq)


def _unpacked(spool: Path, target: Path, *, beside: Path) -> list[LeftOut]:
    """Replace `target` by an archive's content.

    The archive is unpacked into a new directory next to `beside`, which then
    replaces `target`. An error while unpacking changes nothing.
    """
    part = Path(tempfile.mkdtemp(prefix=f".{beside.name[:40]}.", dir=beside.parent))
    try:
        left_out = unpack(_pieces(spool), part)
        part.chmod(0o755)
        target.parent.mkdir(parents=True, exist_ok=True)
        tree.remove(str(target))
        part.rename(target)
    except BaseException:
        tree.remove(str(part))
        raise
    return left_out


@contextmanager
def _spooled(
    ray: RayApi, run: RunDirectory, node_id: str, archive: Archive, *, at: Path
) -> Iterator[Path]:
    """Yield a temporary file with the checked archive. Raises OutsideError."""
    filename = f"{names.run_directory(run.name)}/{archive.file}"
    spool = at.with_name(f".{at.name}.tar")
    try:
        _download_stubbornly(ray, node_id, filename, archive, spool)
        yield spool
    finally:
        spool.unlink(missing_ok=True)


def _download_stubbornly(
    ray: RayApi, node_id: str, filename: str, archive: Archive, spool: Path
) -> None:
    for attempt in range(_TRIES):
        try:
            _download(ray, node_id, filename, archive, spool)
            return
        except (FileMissingError, RefusedError):
            raise
        except OutsideError:
            if attempt + 1 == _TRIES:
                raise
            time.sleep(min(4.0, 0.5 * 2**attempt))


def _download(ray: RayApi, node_id: str, filename: str, archive: Archive, spool: Path) -> None:
    digest = hashlib.sha256()
    size = 0
    with ray.file(node_id, filename) as chunks, spool.open("wb") as file:
        for chunk in chunks:
            file.write(chunk)
            digest.update(chunk)
            size += len(chunk)
            if archive.bytes is not None and size > archive.bytes:
                break

    if archive.sha256 is None:
        # A running task may replace its checkpoint: `archive_of` gives no hash until the task ends.
        return
    if size != archive.bytes or digest.hexdigest() != archive.sha256:
        raise OutsideError(
            f"the download is damaged: {size} of {archive.bytes} bytes, sha256 "
            f"{digest.hexdigest()[:12]} instead of {archive.sha256[:12]}",
            where=filename,
        )


def _pieces(spool: Path) -> Iterator[bytes]:
    with spool.open("rb") as file:
        yield from iter(lambda: file.read(_BLOCK), b"")
