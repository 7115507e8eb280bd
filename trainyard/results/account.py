"""What became of a run's files: how many were sent and came home, and which did not."""

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
    """Say what became of the files of a run, once it has ended."""
    if found := extent(run, state):
        yield f"files: {found}"
    yield from not_home(state)


def extent(run: RunDirectory, state: RunState) -> str:
    """Say how many files were sent, left out, and brought home; "" while the run goes on, and where
    nothing was.
    """
    sent = store.described(run).get("sent") or {}
    # Runs of before say less of their files.
    if not state.ended or "left_out_count" not in sent:
        return ""
    return ", ".join([*_sent(sent), *_brought(run, state.tasks.values())])


def not_home(state: RunState) -> Iterator[str]:
    """Name what tasks left and did not come home, and what they should have left; nothing of a run
    that goes on.
    """
    tasks = list(state.tasks.values()) if state.ended else []
    yield from _of_tasks("not brought home", tasks, lambda files: files.not_brought)
    yield from _absent(tasks)
    yield from _of_tasks(
        "not in `outputs`, so not brought home", tasks, lambda files: files.undeclared
    )


def _sent(sent: Mapping[str, Any]) -> Iterator[str]:
    yield f"{sent['files']} sent ({size(sent['bytes'])})"
    if left_out := sent["left_out"]:
        yield f"{sent['left_out_count']} left out ({visible(named(left_out, most=5))})"


def _brought(run: RunDirectory, tasks: Iterable[Task]) -> Iterator[str]:
    home: list[AttemptFiles] = []
    away: list[AttemptFiles] = []
    unknown: list[str] = []

    for task in tasks:
        if task.archives and not task.files:
            unknown.append(task.name)
        elif store.missing(run.outputs(task.name), task.archives):
            away += task.files
        else:
            home += task.files

    yield _extent(home, "brought home")
    if away:
        yield f"{_extent(away, 'still on the cluster')}: trainyard train.fetch {run.name}"

    if unknown:
        yield f"and what was seen of {named(unknown)} before it was lost"


def _extent(files: Iterable[AttemptFiles], where: str) -> str:
    count = total = 0
    for each in files:
        count += each.files
        total += each.bytes

    if not count:
        return f"none {where}"
    return f"{count} {where} ({size(total)})"


def _of_tasks(
    what: str, tasks: Iterable[Task], which: Callable[[AttemptFiles], Named]
) -> Iterator[str]:
    """Name such files of the first task that has some, and say how many others have."""
    last = {task.name: which(task.files[-1]) for task in tasks if task.files}
    found = {task: files for task, files in last.items() if files.count}
    if not found:
        return

    task, first = next(iter(found.items()))
    text = f"{what}: {visible(', '.join(first.names))}"
    if first.more:
        text += f" and {first.more} more"
    text += f" of {task}"
    if len(found) > 1:
        text += f"; also files of {counted(len(found) - 1, 'other task')}"
    yield text


def _absent(tasks: list[Task]) -> Iterator[str]:
    absent = Counter(output for task in tasks if task.files for output in task.files[-1].absent)
    if not absent:
        return

    all_tasks = len(tasks)
    each = []
    for name, of in absent.items():
        each.append(name if of == all_tasks else f"{name} ({of} of {all_tasks} tasks)")
    yield f"declared in `outputs`, and not there at the end: {visible(named(each, most=5))}"
