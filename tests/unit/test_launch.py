"""Refusals before anything is sent to a cluster."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from tests.unit.test_plan import CLUSTER, job
from trainyard.console.progress import for_stream
from trainyard.console.run_screen import PrintedScreen
from trainyard.dispatch import launch, plan
from trainyard.endpoint import Endpoint, MissingPackage
from trainyard.errors import PrerequisiteError
from trainyard.spec.job import JobSpec

PYTHON = "/robots/.venv/bin/python"
SWEEP = {
    "space": {"rate": {"uniform": [0.1, 1.0]}, "decay": {"uniform": [0.1, 1.0]}},
    "metric": "reward",
    "samples": 2,
}


def dispatch(spec: JobSpec, head: Endpoint, directory: Path) -> None:
    launch.dispatch(
        plan.prepare(CLUSTER, spec, directory),
        head,
        launch.Asked(directory / "results", command=(), wait=False, skip_smoke=True),
        progress=for_stream(io.StringIO()),
        screen=PrintedScreen(io.StringIO()),
    )


@pytest.mark.parametrize(("search", "missing"), [("tpe", "optuna"), ("cmaes", "cmaes")])
def test_a_sweep_on_a_head_without_its_search_is_refused_before_sending(
    tmp_path: Path, search: str, missing: str
) -> None:
    spec = job(command=["true", "{rate}", "{decay}"], tune={**SWEEP, "search": search})
    head = Endpoint(
        "lab", "http://127.0.0.1:1", lacking=lambda packages: MissingPackage(packages[-1], PYTHON)
    )
    with pytest.raises(PrerequisiteError) as caught:
        dispatch(spec, head, tmp_path)
    assert caught.value.lines() == [
        f"a sweep needs {missing}, and the Python of the cluster's head does not have it",
        f"  at {PYTHON}",
        "  -> Install it there: pip install cmaes optuna",
    ]
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("key", ["uv", "pip"])
def test_packages_for_a_head_without_pip_are_refused_before_sending(
    tmp_path: Path, key: str
) -> None:
    head = Endpoint(
        "lab", "http://127.0.0.1:1", lacking=lambda packages: MissingPackage(packages[-1], PYTHON)
    )
    with pytest.raises(PrerequisiteError) as caught:
        dispatch(job(command=["true"], runtime_env={key: ["numpy"]}), head, tmp_path)
    hint = f"Install it there: {PYTHON} -m ensurepip, or uv pip install --python {PYTHON} pip"
    assert caught.value.hint == hint
    assert not (tmp_path / "results").exists()
