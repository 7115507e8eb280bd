"""Leftovers of killed runs: their owners, and how Ray lists them."""

from __future__ import annotations

from typing import Any

from trainyard.operations.leftovers import of_killed_runs
from trainyard.seams.ray_types import Job, left_from


def driver(number: str, run: str, status: str = "SUCCEEDED") -> Job:
    metadata = {"trainyard_run": run, "trainyard_task": "ppo", "trainyard_attempt": "1"}
    return Job("", status, "", None, None, metadata, driver=number)


def test_drivers_whose_run_still_runs_are_its_own_to_clear() -> None:
    jobs = [
        Job("alive-1", "RUNNING", "", "n", None, {"trainyard_run": "alive-1"}),
        Job("killed-1", "FAILED", "", "n", 137, {"trainyard_run": "killed-1"}),
        driver("02000000", "alive-1"),
        driver("03000000", "killed-1"),
        driver("04000000", "killed-1", status="RUNNING"),
        Job("", "SUCCEEDED", "", None, None, {}, driver="05000000"),
    ]
    assert of_killed_runs(jobs) == {"03000000"}


def test_leftovers_are_the_detached_objects_of_the_given_drivers() -> None:
    def answer(*rows: dict[str, Any]) -> dict[str, Any]:
        return {"data": {"result": {"result": list(rows)}}}

    mine = {"job_id": "03000000", "is_detached": True}
    count = left_from("job_id", {"03000000"})
    assert (
        count(
            answer(mine, {**mine, "is_detached": False}, {**mine, "job_id": "05000000"}, {**mine})
        )
        == 2
    )
