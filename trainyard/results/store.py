"""results/: one append-only directory per run, enough to repeat the run."""

from __future__ import annotations

import datetime
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from trainyard_runner.wire.names import file_stem

from trainyard.errors import OutsideError, Problem, RequestError
from trainyard.wording import did_you_mean

KNOWN_IN = (
    "A run is known only to the results/ from which it was dispatched: repeat the command there, or "
    "set $TRAINYARD_RESULTS to that directory."
)
# True with --dry: new events are shown, but not recorded in results/.
read_only: ContextVar[bool] = ContextVar("read_only", default=False)


_YEAR_9999 = datetime.datetime(9999, 1, 1, tzinfo=datetime.timezone.utc).timestamp()
# The end of a run's name: date, time, and two random bytes.
_WHEN = re.compile(r"-\d{8}-\d{6}-[0-9a-f]{4}$")


class ResultsError(OutsideError):
    """The record of a run cannot be written."""


@contextmanager
def written(path: Path) -> Iterator[None]:
    """Turn an OSError of the block into a ResultsError about `path`."""
    try:
        yield
    except OSError as error:
        raise ResultsError(
            f"results cannot be written: {(error.strerror or str(error)).lower()}",
            where=str(path),
            hint="The run continues. When the directory is writable again: "
            "trainyard train.logs RUN",
        ) from error


class RunDirectory:
    """The directory of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.name
        self.events = path / "events.jsonl"  # all events except output, one JSON object a line
        self.shown = path / ".shown"  # exists once the run was followed on this machine
        self.cluster_file = path / "cluster.yaml"
        self.job_file = path / "job.yaml"
        self.report = path / "report.html"
        self.left_behind = path / "left-behind.json"  # checkpoints lost with the head, and when
        self.study = path / "study.journal"  # a sweep's study, for Optuna's JournalFileBackend

    def log(self, task: str, attempt: int) -> Path:
        return self.path / "logs" / f"{file_stem(task)}.{attempt}.log"

    def outputs(self, task: str) -> Path:
        return self.path / "outputs" / file_stem(task)

    def checkpoint(self, task: str) -> Path:
        return self.path / "checkpoints" / file_stem(task)

    def record(self) -> dict[str, Any]:
        """Read run.json. Raises RequestError if it is missing or damaged."""
        path = self.path / "run.json"
        try:
            record = {"cluster": "", "tasks": [], **json.loads(path.read_text(encoding="utf-8"))}
            if not all(isinstance(text, str) for text in (record["cluster"], *record["tasks"])):
                raise ValueError("a name is no text")
        except (OSError, ValueError, TypeError, RecursionError) as error:
            hint = f"If it is not needed: rm -r {shlex.quote(str(self.path))}"
            raise RequestError("not the record of a run", where=str(path), hint=hint) from error
        return record


def run_name(job: str, *, now: datetime.datetime, entropy: bytes) -> str:
    return f"{job}-{now:%Y%m%d-%H%M%S}-{entropy[:2].hex()}"


def job_of(name: str) -> str:
    """Return the job in a run's name."""
    return _WHEN.sub("", name)


def create(home: Path, record: Mapping[str, Any], *, cluster: str, job: str) -> RunDirectory:
    """Make a new run's directory, with its record and resolved files.

    `cluster` and `job` are YAML text. Raises ResultsError if a file cannot be
    written.
    """
    run = RunDirectory(home / str(record["run"]))
    try:
        _create(run, record, cluster=cluster, job=job)
    except OSError as error:
        raise ResultsError(
            "results cannot be written, and nothing was started: "
            f"{(error.strerror or str(error)).lower()}",
            where=str(error.filename or run.path),
            hint="Choose another place: export TRAINYARD_RESULTS=DIR",
        ) from error
    return run


def _create(run: RunDirectory, record: Mapping[str, Any], *, cluster: str, job: str) -> None:
    run.path.mkdir(parents=True)
    for directory in ("logs", "outputs"):
        (run.path / directory).mkdir()
    run.cluster_file.write_text(cluster, encoding="utf-8")
    run.job_file.write_text(job, encoding="utf-8")
    # Written last and atomically: a directory with a run.json is a run.
    part = run.path / ".run.json"
    # ASCII: names of files that are not UTF-8 have surrogates.
    part.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    part.rename(run.path / "run.json")


def keep_study(run: RunDirectory, study: str) -> None:
    """Begin a resumed sweep's study with the former one, unless empty."""
    if study:
        with written(run.study):
            run.study.write_text(study, encoding="utf-8")


def runs(home: Path, *, cluster: str | None = None) -> tuple[RunDirectory, ...]:
    """Return all runs, or the runs of a cluster, the newest first."""
    # A run without its run.json is damaged, but listed.
    paths = {path.parent for path in (*home.glob("*/run.json"), *home.glob("*/events.jsonl"))}
    dated = []
    for run in map(RunDirectory, paths):
        record = described(run)
        if cluster in (None, record.get("cluster")):
            dated.append((started(record) or 0.0, run.name, run))
    dated.sort(key=lambda entry: entry[:2], reverse=True)
    return tuple(run for _, _, run in dated)


def described(run: RunDirectory) -> dict[str, Any]:
    """Return a run's record, or {}: a damaged one must not hide other runs."""
    try:
        return run.record()
    except RequestError:
        return {}


def started(record: Mapping[str, Any]) -> float | None:
    """Return when a run was dispatched, in Unix seconds; None if unrecorded."""
    try:
        moment = datetime.datetime.fromisoformat(str(record.get("started"))).timestamp()
    except (ValueError, OverflowError):
        return None
    # No run is older than 1970, and datetime has no days after 9999.
    if 0 <= moment < _YEAR_9999:
        return moment
    return None


def find(
    home: Path, name: str | None, *, cluster: str | None = None, elsewhere: str = KNOWN_IN
) -> RunDirectory:
    """Find a run by its name, an unambiguous beginning, or its job.

    A job means its newest run. Without a name, return the newest run, of the
    cluster if given. `elsewhere` is the hint for an unknown run. Raises
    RequestError if no run matches, or if several do.
    """
    known = runs(home, cluster=cluster)
    if name is None and known:
        return known[0]
    if name is None:
        raise _no_runs(home, cluster)

    beginning = Path(name).name
    matching = [run for run in known if beginning and run.name.startswith(beginning)]
    matching = [run for run in matching if run.name == beginning] or matching
    of_job = [run for run in matching if described(run).get("job") == beginning]
    if of_job or len(matching) == 1:
        return [*of_job, *matching][0]

    names = [run.name for run in matching or known]
    listed = ", ".join(names[:5]) or "none"
    if len(names) > 5:
        listed += ", ..."
    if matching:
        problem = Problem("RUN", f"there are: {listed}")
        message = f"several runs begin with {name}"
        raise RequestError(message, problems=(problem,), where=str(home))

    meant = did_you_mean(name, names)
    problem = Problem("RUN", f"there are: {listed}{meant}")
    hint = None if meant else elsewhere
    raise RequestError(f"no such run: {name}", problems=(problem,), where=str(home), hint=hint)


def _no_runs(home: Path, cluster: str | None) -> RequestError:
    message = "there are no runs yet"
    if cluster is not None:
        message += f" on cluster {cluster}"
    hint = (
        "Start one: trainyard train.dispatch JOB_DIR, or a sweep: trainyard tune.dispatch JOB_DIR"
    )
    return RequestError(message, where=str(home), hint=hint)


def keep_checkpoint(run: RunDirectory, task: str, arrived: Path, *, seq: int) -> None:
    """Move a fetched checkpoint to its place, and rename the former one."""
    directory = run.checkpoint(task)
    if directory.exists():
        directory.rename(directory.with_name(f"{directory.name}.older-than-{seq}"))
    arrived.rename(directory)
    number_file(directory).write_text(str(seq), encoding="utf-8")


def fetched(directory: Path) -> int:
    """Return the number of a directory's last fetched archive; 0 for none."""
    path = number_file(directory)
    if path.exists() and directory.exists():
        return int(path.read_text(encoding="utf-8") or 0)
    return 0


def number_file(directory: Path) -> Path:
    return directory.with_name(f".{directory.name}.fetched")
