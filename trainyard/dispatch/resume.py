"""Resume a run: skip finished tasks, and send what the others need."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainyard_runner.wire import archive, outputs
from trainyard_runner.wire.resume import AHEAD, LAST, MORE, PART_BYTES, Inherited, Resume, part_name

from trainyard.results import formats, store
from trainyard.results.store import RunDirectory
from trainyard.seams.ray_api import RayApi
from trainyard.steps import YES, Answer, Step, no
from trainyard.wording import counted, named

_ASK_EVERY = 0.1


@dataclass(frozen=True)
class Resumed:
    """The run that a new run resumes; `plan` is `resume` of the new plan."""

    run: RunDirectory
    plan: Resume
    # Tasks whose last checkpoint, never fetched, the head reads from the cluster's storage.
    on_storage: tuple[str, ...] = ()

    def record(self) -> dict[str, Any]:
        """Return the former run's entry in the new run's run.json."""
        with_checkpoint = [task.task for task in self.plan.inherited if task.checkpoint]
        for task in self.on_storage:
            if task not in with_checkpoint:
                with_checkpoint.append(task)
        return {
            "run": self.run.name,
            "skipped": list(self.plan.skipped),
            "from_checkpoint": with_checkpoint,
        }

    def described(self, tasks: int) -> str:
        """Say how many tasks are skipped, have a checkpoint, or start fresh."""
        skipped = self.plan.skipped
        with_checkpoint = self.record()["from_checkpoint"]
        fresh = tasks - len(skipped) - len(with_checkpoint)
        parts = []
        if skipped:
            parts.append(f"skips {counted(len(skipped), 'task')} that succeeded")
        if with_checkpoint:
            parts.append(f"from their checkpoints: {named(with_checkpoint)}")
        if fresh:
            parts.append(f"from the beginning: {counted(fresh, 'task')}")
        return f"resumes {self.run.name}: {'; '.join(parts)}"


def inherited(run: RunDirectory, task: str, *, each_attempt: bool) -> Inherited:
    """Say whether the next run inherits a task's checkpoint, and its outputs.

    With `each_attempt`, outputs belong to one attempt and are not inherited.
    """
    has_outputs = not each_attempt and _has_files(run.outputs(task))
    return Inherited(task, _has_files(run.checkpoint(task)), has_outputs)


def link(resumed: Resumed, run: RunDirectory) -> None:
    """Hard-link the former run's outputs and checkpoints into the new run.

    They are copied where the file system refuses hard links.
    """
    former = resumed.run
    for task in resumed.plan.skipped:
        _link(former.outputs(task), run.outputs(task))
        _link(former.checkpoint(task), run.checkpoint(task))

    for inherited in resumed.plan.inherited:
        task = inherited.task
        if inherited.checkpoint:
            _link(former.checkpoint(task), run.checkpoint(task))
        if inherited.outputs:
            _link(former.outputs(task), run.outputs(task))
            # The runner will announce these outputs as archive 1, which need not be fetched.
            store.number_file(run.outputs(task)).write_text("1", encoding="utf-8")


def send(ray: RayApi, run: str, resumed: Resumed, *, interrupted: Callable[[], bool]) -> Step:
    """Return the step that uploads the checkpoints and outputs for the tasks.

    At most AHEAD uploaded parts wait for the head. An interruption or the run's
    end ends the upload without an error.
    """
    directories = list(_directories(resumed))
    size = sum(outputs.data_bytes(archive.scan(str(path))[0]) for path in directories)
    sent: list[bool] = []

    def is_sent() -> Answer:
        return YES if sent else no("not sent")

    def upload() -> None:
        for number, part in enumerate(_parts(directories)):
            if interrupted() or (number >= AHEAD and not _is_taken(ray, run, number - AHEAD)):
                break
            ray.put_package(part_name(run, number), part)
        sent.append(True)

    title = f"Send checkpoints and outputs, {formats.size(size)}"
    return Step("send-resumed", title, done=is_sent, do=upload, deadline=10.0)


def _is_taken(ray: RayApi, run: str, number: int) -> bool:
    """Wait until the head has taken a part; False if the run ended instead."""
    while ray.has_package(part_name(run, number)):
        job = ray.job(run)
        if job is None or job.ended:
            return False
        time.sleep(_ASK_EVERY)
    return True


def _directories(resumed: Resumed) -> Iterator[Path]:
    """Yield the directories to upload, in the runner's order."""
    for inherited in resumed.plan.inherited:
        if inherited.checkpoint:
            yield resumed.run.checkpoint(inherited.task)
        if inherited.outputs:
            yield resumed.run.outputs(inherited.task)


def _parts(directories: list[Path]) -> Iterator[bytes]:
    for directory in directories:
        pending = b""
        for piece in archive.parts(archive.scan(str(directory))[0].values(), []):
            pending += piece
            while len(pending) > PART_BYTES:
                yield MORE + pending[:PART_BYTES]
                pending = pending[PART_BYTES:]
        yield LAST + pending


def _has_files(directory: Path) -> bool:
    return directory.is_dir() and any(directory.iterdir())


def _link(source: Path, target: Path) -> None:
    if source.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, target, copy_function=_hard_link, symlinks=True, dirs_exist_ok=True)


def _hard_link(source: str, target: str) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=False)
