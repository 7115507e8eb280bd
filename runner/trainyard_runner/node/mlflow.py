"""A task's runs in MLflow, as MLflow's own client shows them: it knows every kind of store, and how
to log in.

The client is a process beside the task, with its directory, its environment and the `python` on its
PATH: where a training logs to MLflow, that has it. MLflow gives every run the tags of
$MLFLOW_RUN_CONTEXT; one is the attempt's.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, cast

from trainyard_runner.wire.names import plain

_TAG = "trainyard.attempt"
_LOCAL = re.compile(r"(?:sqlite:///|file:(?://)?)([^?]*)")


def context(attempt: str) -> dict[str, str]:
    return {"MLFLOW_RUN_CONTEXT": json.dumps({_TAG: _quoted(attempt)})}


@contextlib.contextmanager
def client(
    watch: Mapping[str, Any], directory: Path, environment: Mapping[str, str]
) -> Iterator[Callable[[], Any]]:
    """Give what returns the new points. Without `path` or `uri`, MLflow looks where it does for the
    task itself.
    """
    found = (shutil.which(name, path=environment.get("PATH")) for name in ("python", "python3"))
    python = next(filter(None, found), sys.executable)
    variables = {
        **environment,
        "PYTHONPATH": f"{Path(__file__).parents[2]}:{environment.get('PYTHONPATH', '')}",
    }

    if uri := f"file:./{watch['path']}" if watch["path"] else watch["uri"]:
        variables["MLFLOW_TRACKING_URI"] = uri

    command = [python, "-m", __name__, plain(watch["metric"])]
    pipe = subprocess.PIPE
    null = subprocess.DEVNULL
    with subprocess.Popen(
        command, cwd=directory, env=variables, stdin=pipe, stdout=pipe, stderr=null
    ) as process:
        questions = cast("IO[bytes]", process.stdin)
        answers = cast("IO[bytes]", process.stdout)

        def new() -> Any:
            questions.write(b"\n")
            questions.flush()
            answer = json.loads(answers.readline() or '{"error": "its client has ended"}')
            if "error" in answer:
                raise ValueError(answer["error"])
            return answer

        try:
            yield new
        finally:
            process.kill()


def main(metric: str) -> None:
    """Answer each line of stdin: [name, step, value, seconds since 1970] of every new point, or
    {"error": text}.
    """
    answers = sys.stdout
    sys.stdout = sys.stderr  # whatever MLflow prints
    seen: dict[tuple[str, str], int] = {}
    for _ in sys.stdin:
        try:
            answer: Any = list(_new(metric, seen))
        except Exception as error:  # MLflow's, its stores' and plugins' have no common base
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


def _new(
    metric: str, seen: dict[tuple[str, str], int]
) -> Iterator[tuple[str, float | None, float, float]]:
    mlflow: Any = importlib.import_module("mlflow")
    local = _LOCAL.fullmatch(mlflow.get_tracking_uri())
    if local and not Path(urllib.parse.unquote(local[1])).exists():
        return  # MLflow would make it, just when the training does

    store = mlflow.MlflowClient()
    experiments = [experiment.experiment_id for experiment in store.search_experiments()]
    attempt = _quoted(os.environ["TRAINYARD_ATTEMPT_ID"])
    for run in store.search_runs(experiments, f"tags.`{_TAG}` = '{attempt}'"):
        for name, latest in run.data.metrics.items():
            if plain(name) != metric:
                yield name, None, latest, 0.0
                continue
            history = store.get_metric_history(run.info.run_id, name)
            for point in history[seen.get((run.info.run_id, name), 0) :]:
                yield name, point.step, point.value, point.timestamp / 1000
            seen[run.info.run_id, name] = len(history)


def _quoted(attempt: str) -> str:
    """Return an attempt as MLflow's filters can be given it: they know no way to write a quotation
    mark.
    """
    return urllib.parse.quote(attempt, safe="/:=,")


if __name__ == "__main__":
    main(sys.argv[1])
