"""results/: one directory per run, append-only, enough to say a year later what ran and to run it again."""

from __future__ import annotations

import datetime
import json
import shlex
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainyard_runner import tree
from trainyard_runner.names import file_stem

from trainyard.errors import Problem, RequestError
from trainyard.results.event import parse
from trainyard.suggest import did_you_mean

# Whether nothing may be written to results/: what a run says meanwhile is shown and not recorded (--dry).
read_only: ContextVar[bool] = ContextVar("read_only", default=False)


@dataclass(frozen=True)
class RunDirectory:
    """The directory of one run."""

    path: Path

    @property
    def name(self) -> str:
        """Return the run's name, which is also its Ray job's submission id."""
        return self.path.name

    @property
    def events(self) -> Path:
        """Return the file of all events except output, one JSON object a line."""
        return self.path / "events.jsonl"

    @property
    def cluster_file(self) -> Path:
        """Return the cluster file as resolved, without secrets: how the run is found again."""
        return self.path / "cluster.yaml"

    @property
    def report(self) -> Path:
        """Return where the report is written."""
        return self.path / "report.html"

    def log(self, task: str, attempt: int) -> Path:
        """Return the log of one attempt."""
        return self.path / "logs" / f"{file_stem(task)}.{attempt}.log"

    def outputs(self, task: str) -> Path:
        """Return the directory of what a task left behind."""
        return self.path / "outputs" / file_stem(task)

    def checkpoint(self, task: str) -> Path:
        """Return the directory of a task's last checkpoint, if it was fetched."""
        return self.path / "checkpoints" / file_stem(task)

    def record(self) -> dict[str, Any]:
        """Return run.json: who ran what, where, with which versions."""
        path = self.path / "run.json"
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            fits = all(isinstance(text, str) for text in (record.get("cluster", ""), *record.get("tasks", ())))
        except (OSError, ValueError, TypeError, AttributeError, RecursionError):
            fits = False
        if not fits:
            hint = f"If nobody needs it: rm -r {shlex.quote(str(self.path))}"
            raise RequestError("not the record of a run", where=str(path), hint=hint)
        return {"cluster": "", **record}


def run_name(job: str, *, now: datetime.datetime, entropy: bytes) -> str:
    """Return a name for a new run: sorts by time within a job, and never collides."""
    return f"{job}-{now:%Y%m%d-%H%M%S}-{entropy[:2].hex()}"


def create(home: Path, record: Mapping[str, Any], *, cluster: str, job: str) -> RunDirectory:
    """Make the directory of a new run from its record and both files as resolved (YAML text)."""
    run = RunDirectory(home / str(record["run"]))
    run.path.mkdir(parents=True)
    for directory in ("logs", "outputs"):
        (run.path / directory).mkdir()
    run.cluster_file.write_text(cluster, encoding="utf-8")
    (run.path / "job.yaml").write_text(job, encoding="utf-8")
    # Last, and whole or not at all: a directory with a run.json is a run.
    part = run.path / ".run.json"
    part.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    part.rename(run.path / "run.json")
    return run


def discard(run: RunDirectory) -> None:
    """Remove the directory of a run that never began."""
    tree.remove(str(run.path))


def runs(home: Path, *, cluster: str | None = None) -> tuple[RunDirectory, ...]:
    """Return every run, or those of a cluster, the newest first."""
    # One whose run.json is gone is a run that is damaged.
    paths = {path.parent for name in ("run.json", "events.jsonl") for path in home.glob(f"*/{name}")}
    found = [RunDirectory(path) for path in paths]
    if cluster is not None:
        found = [run for run in found if described(run).get("cluster") == cluster]
    return tuple(sorted(found, key=lambda run: (str(described(run).get("started", "")), run.name), reverse=True))


def described(run: RunDirectory) -> dict[str, Any]:
    """Return a run's record; {} of one that is damaged, which must not keep others from being found."""
    try:
        return run.record()
    except RequestError:
        return {}


def find(home: Path, asked: str | None, *, cluster: str | None = None) -> RunDirectory:
    """Return the run that was asked for by name or by an unambiguous beginning; the newest (of a cluster) if none was.

    Raises RequestError with the nearest names.
    """
    known = runs(home, cluster=cluster)
    if asked is None:
        if not known:
            on = "" if cluster is None else f" on cluster {cluster}"
            raise RequestError(
                f"there are no runs yet{on}", where=str(home), hint="Start one: invoke train.dispatch JOB_DIR"
            )
        return known[0]
    wanted = Path(asked).name
    exact = [run for run in known if run.name == wanted]
    meant = exact or [run for run in known if wanted and run.name.startswith(wanted)]
    if len(meant) == 1:
        return meant[0]
    raise RequestError(
        f"no such run: {asked}" if not meant else f"several runs begin with {asked}",
        problems=(_meant(asked, meant or known, several=bool(meant)),),
        where=str(home),
    )


def events(run: RunDirectory) -> Iterator[dict[str, Any]]:
    """Yield the events that were recorded; a line that was cut off by a crash ends them."""
    if not run.events.exists():
        return
    with run.events.open("rb") as lines:
        for line in lines:
            if not line.endswith(b"\n"):
                return
            yield parse(line, where=str(run.events), hint="Another program has changed this file.")


def fetched_outputs(run: RunDirectory, task: str) -> int:
    """Return the number of the last of a task's output archives that is here; 0 if none is."""
    path = outputs_number(run, task)
    text = path.read_text(encoding="utf-8") if path.exists() and run.outputs(task).exists() else ""
    return int(text or 0)


def outputs_number(run: RunDirectory, task: str) -> Path:
    """Return the file that holds the number of the last output archive that is here; it is also their lock."""
    place = run.outputs(task)
    return place.with_name(f".{place.name}.fetched")


def fetched_checkpoint(run: RunDirectory, task: str) -> int | None:
    """Return the number of the checkpoint that was fetched last; None if there is none."""
    path = _checkpoint_number(run, task)
    return int(path.read_text(encoding="utf-8")) if path.exists() and run.checkpoint(task).exists() else None


def keep_checkpoint(run: RunDirectory, task: str, arrived: Path, *, seq: int) -> None:
    """Put a checkpoint that has arrived into its place; an older one moves aside under a name that says so."""
    place = run.checkpoint(task)
    if place.exists():
        place.rename(place.with_name(f"{place.name}.older-than-{seq}"))
    arrived.rename(place)
    _checkpoint_number(run, task).write_text(str(seq), encoding="utf-8")


def _checkpoint_number(run: RunDirectory, task: str) -> Path:
    place = run.checkpoint(task)
    return place.with_name(f".{place.name}.fetched")


def _meant(asked: str, known: list[RunDirectory] | tuple[RunDirectory, ...], *, several: bool) -> Problem:
    names = [run.name for run in known]
    listed = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "") if names else "none"
    close = "" if several else did_you_mean(asked, names)
    return Problem("RUN", f"{'one of' if several else 'there are'}: {listed}{close}")
