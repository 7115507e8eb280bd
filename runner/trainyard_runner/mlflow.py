"""A task's runs in MLflow: on a tracking server, in a database of its own, or in a directory mlruns.

MLflow gives every run the tags of $MLFLOW_RUN_CONTEXT: by such a tag the runs of an attempt are found.
"""

from __future__ import annotations

import base64
import contextlib
import json
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

Point = tuple[str, float, float, float]
TAG = "trainyard.attempt"
_SECONDS = 5.0
_ROWS = (
    "SELECT key, step, CASE WHEN is_nan THEN 'nan' ELSE value END, timestamp / 1000.0, rowid FROM metrics"
    " WHERE rowid > ? AND run_uuid IN (SELECT run_uuid FROM tags WHERE key = ? AND value = ?) ORDER BY rowid"
)


def context(attempt: str) -> dict[str, str]:
    return {"MLFLOW_RUN_CONTEXT": json.dumps({TAG: _quoted(attempt)})}


def source(
    watch: dict[str, Any], directory: Path, environment: Mapping[str, str], is_metric: Callable[[str], bool]
) -> Callable[[], Iterable[Point]]:
    """Return what reads the points that are new; where neither file nor environment says where, what MLflow makes."""
    attempt = _quoted(environment["TRAINYARD_ATTEMPT_ID"])
    uri = watch["path"] or watch["uri"] or environment.get("MLFLOW_TRACKING_URI", "")
    if uri.startswith(("http://", "https://")):
        return _Server(uri.rstrip("/"), attempt, environment, is_metric).new
    local = _Local(attempt)
    if uri.startswith("sqlite:///"):
        return lambda: local.of_database(directory / uri.removeprefix("sqlite:///"))
    if uri:
        return lambda: local.of_directory(directory / uri.removeprefix("file:").removeprefix("//"))
    return lambda: [*local.of_database(directory / "mlflow.db"), *local.of_directory(directory / "mlruns")]


class _Server:
    """Asks a tracking server, as MLflow's client does."""

    def __init__(
        self, uri: str, attempt: str, environment: Mapping[str, str], is_metric: Callable[[str], bool]
    ) -> None:
        self._api = f"{uri}/api/2.0/mlflow"
        self._attempt = attempt
        self._is_metric = is_metric
        self._known: dict[tuple[str, str], list[Any]] = {}
        self._headers = {"Content-Type": "application/json"}
        if token := environment.get("MLFLOW_TRACKING_TOKEN"):
            self._headers["Authorization"] = f"Bearer {token}"
        elif user := environment.get("MLFLOW_TRACKING_USERNAME"):
            login = f"{user}:{environment.get('MLFLOW_TRACKING_PASSWORD', '')}"
            self._headers["Authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"

    def new(self) -> Iterator[Point]:
        experiments = self._ask("experiments/search", {"max_results": 1000}).get("experiments", [])
        ids = [experiment["experiment_id"] for experiment in experiments]
        query = {"experiment_ids": ids, "filter": f"tags.`{TAG}` = '{self._attempt}'"}
        for run in self._ask("runs/search", query).get("runs", []):
            for latest in run["data"].get("metrics", []):
                if not self._is_metric(latest["key"]):
                    yield _point(latest)
                    continue
                known = self._known.setdefault((run["info"]["run_id"], latest["key"]), [])
                if latest not in known[-1:]:
                    asked = urllib.parse.urlencode({"run_id": run["info"]["run_id"], "metric_key": latest["key"]})
                    values = self._ask(f"metrics/get-history?{asked}").get("metrics", [])
                    yield from map(_point, values[len(known) :])
                    known[:] = values

    def _ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        text = None if body is None else json.dumps(body).encode()
        # Its scheme was looked at in `source`.
        request = urllib.request.Request(f"{self._api}/{path}", data=text, headers=self._headers)  # noqa: S310
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310
            return json.load(answer)


class _Local:
    """Reads what MLflow's client writes without a server."""

    def __init__(self, attempt: str) -> None:
        self._attempt = attempt
        self._row = 0
        self._at: dict[Path, int] = {}

    def of_database(self, path: Path) -> list[Point]:
        """Return new points from MLflow's SQLite file (its default since 3.7)."""
        if not path.exists():
            return []
        import sqlite3  # not every Python has it

        try:
            uri = f"file:{urllib.parse.quote(str(path))}?mode=ro"
            with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=_SECONDS)) as database:
                rows = database.execute(_ROWS, (self._row, TAG, self._attempt)).fetchall()
        except sqlite3.Error as error:
            raise ValueError(f"{path.name}: {error}") from error
        self._row = rows[-1][-1] if rows else self._row
        return [(name, step, float(value), time) for name, step, value, time, _ in rows]

    def of_directory(self, directory: Path) -> Iterator[Point]:
        """Yield new points from an mlruns directory: EXPERIMENT/RUN/metrics/NAME, a line for each value."""
        for tag in directory.glob(f"*/*/tags/{TAG}"):
            metrics = tag.parent.parent / "metrics"
            if tag.read_text() != self._attempt:
                continue
            for path in (path for path in metrics.rglob("*") if path.is_file()):
                with path.open("rb") as file:
                    file.seek(self._at.get(path, 0))
                    for line in file:
                        if line.endswith(b"\n"):
                            time, value, step = line.split()[:3]
                            yield str(path.relative_to(metrics)), float(step), float(value), int(time) / 1000
                            self._at[path] = self._at.get(path, 0) + len(line)


def _quoted(attempt: str) -> str:
    """Return an attempt as MLflow's filters can be given it: they know no way to write a quotation mark."""
    return urllib.parse.quote(attempt, safe="/:=,")


def _point(metric: dict[str, Any]) -> Point:
    return metric["key"], float(metric.get("step", 0)), float(metric["value"]), metric.get("timestamp", 0) / 1000
