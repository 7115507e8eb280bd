"""Account for the files of a run: sent, brought home, and not brought home."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from trainyard.results import store
from trainyard.results.attempt_files import AttemptFiles, Named
from trainyard.results.formats import size
from trainyard.results.state import RunState, Task
from trainyard.results.store import RunDirectory
from trainyard.wording import counted, named, visible


def lines(run: RunDirectory, state: RunState) -> Iterator[str]:
    summary = extent(run, state)
    if summary:
        yield f"files: {summary}"
    yield from not_home(state)


def extent(run: RunDirectory, state: RunState) -> str:
    """Say how many files were sent, left out, and brought home.

    Returns "" before the run's end, and if the record lacks these numbers.
    """
    sent = store.described(run).get("sent") or {}
    # Records of older versions do not count the files that were left out.
    if not state.ended or "left_out_count" not in sent:
        return ""
    return ", ".join([*_sent(sent), *_brought(run, state.tasks.values())])


def not_home(state: RunState) -> Iterator[str]:
    """Yield a line for each kind of file that is missing, or not brought home.

    Yields nothing before the run's end.
    """
    if not state.ended:
        return

    tasks = list(state.tasks.values())
    yield from _of_tasks("not brought home", tasks, lambda files: files.not_brought)
    yield from _missing(tasks)
    yield from _of_tasks(
        "not in `outputs`, so not brought home", tasks, lambda files: files.undeclared
    )


def _sent(sent: Mapping[str, Any]) -> Iterator[str]:
    yield f"{sent['files']} sent ({size(sent['bytes'])})"
    if sent["left_out"]:
        names = visible(named(sent["left_out"], most=5))
        yield f"{sent['left_out_count']} left out ({names})"


def _brought(run: RunDirectory, tasks: Iterable[Task]) -> Iterator[str]:
    home: list[AttemptFiles] = []
    away: list[AttemptFiles] = []
    unknown: list[str] = []

    for task in tasks:
        if task.archives and not task.files:
            unknown.append(task.name)
        elif task.missing(run):
            away += task.files
        else:
            home += task.files

    yield _extent(home, "brought home")
    if away:
        yield f"{_extent(away, 'still on the cluster')}: trainyard train.fetch {run.name}"
    if unknown:
        yield f"and an unknown number of files of {named(unknown)}"


def _extent(files: Iterable[AttemptFiles], where: str) -> str:
    count = 0
    total = 0
    for attempt in files:
        count += attempt.files
        total += attempt.bytes

    if not count:
        return f"none {where}"
    return f"{count} {where} ({size(total)})"


def _of_tasks(
    what: str, tasks: Iterable[Task], which: Callable[[AttemptFiles], Named]
) -> Iterator[str]:
    """Yield a line on files of one kind, if a task has such files.

    The line names the files of the first such task, and gives the number of
    other tasks. `which` picks the kind from a task's last report of its files;
    `what` names the kind.
    """
    of_tasks: list[tuple[str, Named]] = []
    for task in tasks:
        reported = task.files
        if reported and which(reported[-1]).count:
            of_tasks.append((task.name, which(reported[-1])))

    if not of_tasks:
        return

    name, files = of_tasks[0]
    text = f"{what}: {visible(', '.join(files.names))}"
    if files.more:
        text += f" and {files.more} more"
    text += f" of {name}"
    if len(of_tasks) > 1:
        text += f"; also files of {counted(len(of_tasks) - 1, 'other task')}"
    yield text


def _missing(tasks: list[Task]) -> Iterator[str]:
    missing: Counter[str] = Counter()
    for task in tasks:
        if task.files:
            missing.update(task.files[-1].absent)
    if not missing:
        return

    texts = []
    for name, count in missing.items():
        if count == len(tasks):
            texts.append(name)
        else:
            texts.append(f"{name} ({count} of {len(tasks)} tasks)")
    yield f"declared in `outputs`, and not there at the end: {visible(named(texts, most=5))}"
