"""The MLflow client, with a store that fails between two runs."""

from __future__ import annotations

import io
import json
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from trainyard_runner.node import mlflow

POINTS = {
    "first": [SimpleNamespace(step=1, value=0.5, timestamp=1000)],
    "second": [SimpleNamespace(step=1, value=0.7, timestamp=2000)],
}


class Store:
    """A client of MLflow whose server fails once, at the second run's history."""

    has_failed = False

    def search_experiments(self) -> list[Any]:
        return [SimpleNamespace(experiment_id="0")]

    def search_runs(self, experiments: list[str], filter_string: str) -> list[Any]:
        assert experiments == ["0"]
        assert filter_string == "tags.`trainyard.attempt` = 'walk.1'"
        data = SimpleNamespace(metrics={"loss": 0.0})
        return [SimpleNamespace(data=data, info=SimpleNamespace(run_id=name)) for name in POINTS]

    def get_metric_history(self, run: str, metric: str) -> list[Any]:
        assert metric == "loss"
        if run == "second" and not Store.has_failed:
            Store.has_failed = True
            raise ConnectionError("the server is away")
        return POINTS[run]


def test_points_before_an_error_come_in_the_next_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = ModuleType("mlflow")
    module.get_tracking_uri = lambda: "https://mlflow.lab"  # type: ignore[attr-defined]
    module.MlflowClient = Store  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mlflow", module)
    monkeypatch.setenv("TRAINYARD_ATTEMPT_ID", "walk.1")
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n\n\n"))
    monkeypatch.setattr(sys, "stdout", sys.stdout)

    mlflow.main("loss")

    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert answers == [
        {"error": "ConnectionError: the server is away"},
        [["loss", 1, 0.5, 1.0], ["loss", 1, 0.7, 2.0]],
        [],
    ]
