"""Reads a task's runs through MLflow's own client.

The client supports all MLflow stores and logins. It is another process, in the
task's directory and with the task's environment. It runs in the first `python`
on the task's PATH, which has the client if the training logs to MLflow. MLflow
gives every run the tags in $MLFLOW_RUN_CONTEXT, one of which names the attempt.
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
    """Return the variables by which MLflow tags runs with the attempt."""
    return {"MLFLOW_RUN_CONTEXT": json.dumps({_TAG: _quoted(attempt)})}


@contextlib.contextmanager
def client(
    watch: Mapping[str, Any], directory: Path, environment: Mapping[str, str]
) -> Iterator[Callable[[], Any]]:
    """Start the client; yield a function that returns the new points.

    Each call returns the points since the call before, as `main` describes
    them. The function raises ValueError if MLflow cannot be read. `watch` may
    name a store by `path` or `uri`; otherwise MLflow uses the store of the
    task's environment.
    """
    path = environment.get("PATH")
    python = shutil.which("python", path=path) or shutil.which("python3", path=path)
    python_path = environment.get("PYTHONPATH", "")
    variables = {**environment, "PYTHONPATH": f"{Path(__file__).parents[2]}:{python_path}"}
    if watch["path"]:
        variables["MLFLOW_TRACKING_URI"] = f"file:./{watch['path']}"
    elif watch["uri"]:
        variables["MLFLOW_TRACKING_URI"] = watch["uri"]

    command = [python or sys.executable, "-m", __name__, plain(watch["metric"])]
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
            answer = json.loads(answers.readline() or '{"error": "the MLflow client has ended"}')
            if "error" in answer:
                raise ValueError(answer["error"])
            return answer

        try:
            yield new
        finally:
            process.kill()


def main(metric: str) -> None:
    """Answer each line of stdin with a line of JSON.

    The answer is {"error": text}, or a list of points, [name, step, value,
    seconds since 1970] each: all new points of `metric`, and the latest point
    of every other metric.
    """
    answers = sys.stdout
    sys.stdout = sys.stderr  # for lines that MLflow prints
    seen: dict[tuple[str, str], int] = {}
    for _ in sys.stdin:
        counted = dict(seen)
        try:
            answer: Any = list(_new(metric, counted))
            # Points that an error drops are not counted, so the next answer has them.
            seen = counted
        except Exception as error:  # the errors of MLflow, its stores and plugins share no base
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


def _new(
    metric: str, seen: dict[tuple[str, str], int]
) -> Iterator[tuple[str, float | None, float, float]]:
    """Yield the points for an answer; count those of `metric` in `seen`."""
    mlflow: Any = importlib.import_module("mlflow")
    local = _LOCAL.fullmatch(mlflow.get_tracking_uri())
    if local and not Path(urllib.parse.unquote(local[1])).exists():
        return  # MLflow would create the store, perhaps at the same time as the training

    store = mlflow.MlflowClient()
    experiments = [experiment.experiment_id for experiment in store.search_experiments()]
    attempt = _quoted(os.environ["TRAINYARD_ATTEMPT_ID"])
    for run in store.search_runs(experiments, f"tags.`{_TAG}` = '{attempt}'"):
        for name, latest in run.data.metrics.items():
            if plain(name) != metric:
                yield name, None, latest, 0.0
                continue
            history = store.get_metric_history(run.info.run_id, name)
            known = seen.get((run.info.run_id, name), 0)
            for point in history[known:]:
                yield name, point.step, point.value, point.timestamp / 1000
            seen[run.info.run_id, name] = len(history)


def _quoted(attempt: str) -> str:
    """Percent-encode an attempt's id: MLflow's filters allow no quotes."""
    return urllib.parse.quote(attempt, safe="/:=,")


if __name__ == "__main__":
    main(sys.argv[1])
