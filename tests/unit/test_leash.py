"""The moment when a leash ends a cluster, and how `cluster.up` sets the leash of its file."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from trainyard_runner import leash as program

from trainyard.backends.contract import ClusterState, ClusterStatus, LeashStatus, Site
from trainyard.backends.shared import leash as leashes
from trainyard.backends.shared.leash import Leash
from trainyard.errors import RequestError
from trainyard.operations import clusters, usage
from trainyard.operations.cluster import Cluster
from trainyard.operations.usage import Usage
from trainyard.spec.cluster import ClusterSpec, LoadedCluster
from trainyard.steps import Step

NOON = 1_800_000_000.0
HOUR = 3600.0
BOTH = {"idle": "2h", "deadline": "12h"}


def spec(leash: dict[str, str] | None, backend: str = "local", **more: Any) -> ClusterSpec:
    file = {"name": "lab", "backend": backend, "leash": leash, **more}
    return ClusterSpec.model_validate(file, context={})


class Yard:
    """A cluster that was made at noon, and the leash that it has."""

    def __init__(self, state: Path, held: LeashStatus | None = None) -> None:
        state.mkdir()
        self.site, self.held, self.made = Site(state, {}, "local"), held, NOON

    @property
    def leash(self) -> Leash:
        return Leash(lambda: self.held, lambda: self.made, self._set, self._take_off)

    def steps(self, leash: dict[str, str] | None) -> list[Step]:
        return leashes.steps(spec(leash), self.site, self.leash, after="Start the head")

    def status(self, state: ClusterState) -> ClusterStatus:
        return ClusterStatus("lab", "local", state, (), leash=self.held)

    def _set(self, leash: LeashStatus) -> None:
        self.held = leash

    def _take_off(self) -> None:
        self.held = None


@pytest.fixture
def yard(tmp_path: Path) -> Yard:
    yard = Yard(tmp_path / "state")
    yard.made = time.time()
    return yard


@pytest.mark.parametrize(
    ("jobs", "since"),
    [
        (None, None),
        ([], NOON),
        (
            [
                {"status": "SUCCEEDED", "end_time": (NOON + 60) * 1000},
                {"status": "FAILED", "end_time": None},
            ],
            NOON + 60,
        ),
        ([{"status": "STOPPED", "end_time": (NOON - 60) * 1000}], NOON),
        ([{"status": "SUCCEEDED", "end_time": NOON * 1000}, {"status": "PENDING"}], None),
        ([{"status": "RUNNING", "submission_id": None}], None),
    ],
    ids=["no answer", "no job yet", "ended", "ended before it counted", "one waits", "a driver"],
)
def test_a_cluster_is_idle_since_its_last_job_ended(
    jobs: program.Jobs | None, since: float | None
) -> None:
    assert program.idle_since(jobs, NOON) == since


@pytest.mark.usefixtures("at_once")
def test_a_leash_retries_the_end_of_its_cluster_after_any_error() -> None:
    outcomes: list[Exception] = [KeyError("Names"), OSError("refused")]

    def end() -> None:
        if outcomes:
            raise outcomes.pop()

    program.hold(
        # A scheme that urllib does not know: nothing answers.
        {
            "dashboard": "none://",
            "token_file": None,
            "deadline": NOON - HOUR * 24 * 3650,
            "idle": None,
        },
        end,
    )
    assert not outcomes


@pytest.mark.parametrize(
    ("deadline", "idle", "since", "moment"),
    [
        (NOON, None, None, NOON),
        (NOON + HOUR, 60.0, NOON, NOON + 60),
        (NOON + HOUR, 2 * HOUR, NOON, NOON + HOUR),
        (None, 60.0, None, None),
        (NOON, 60.0, None, NOON),
    ],
)
def test_it_ends_at_its_deadline_or_when_it_was_idle_for_long_enough(
    deadline: float | None, idle: float | None, since: float | None, moment: float | None
) -> None:
    assert program.ends_at(deadline, idle, since) == moment


def test_a_status_says_when_it_ends_as_things_are(yard: Yard) -> None:
    yard.held = LeashStatus(HOUR, NOON + 12 * HOUR, since=NOON)
    now = yard.status("up")
    assert usage.ends_at(now, Usage(runs=(), last_end=NOON + HOUR)) == NOON + 2 * HOUR
    # The active runs are unknown.
    assert usage.ends_at(now, Usage()) == NOON + 12 * HOUR


def test_it_is_set_and_counts_from_when_the_cluster_was_made(yard: Yard) -> None:
    (step,) = yard.steps(BOTH)
    assert (step.title, step.after) == ("Set the leash: idle 2h, deadline 12h", "Start the head")
    assert step.done().detail == "the cluster has no leash"
    step.do()
    assert yard.held == LeashStatus(2 * HOUR, yard.made + 12 * HOUR)
    assert step.done().holds
    assert " or after 2h without a job" in step.done().detail
    assert json.loads((yard.site.state / "leash.json").read_text()) == {
        "idle": 2 * HOUR,
        "deadline": yard.made + 12 * HOUR,
    }


def test_another_one_in_the_file_is_set_and_none_is_taken_off(yard: Yard) -> None:
    yard.steps(BOTH)[0].do()
    assert not yard.steps({"idle": "3h"})[0].done().holds
    (step,) = yard.steps(None)
    assert (step.title, step.done().holds) == ("Take the leash off", False)
    step.do()
    assert step.done().holds
    assert yard.steps(None) == []


def test_one_that_does_not_hold_says_why(yard: Yard) -> None:
    yard.held = LeashStatus(2 * HOUR, yard.made + 12 * HOUR, problem="it has ended")
    assert yard.steps(BOTH)[0].done().holds
    (proof,) = leashes.proof(spec(BOTH), yard.leash, after="Start the head")
    assert proof.done().detail == "it has ended"
    proof.do()
    assert proof.done().holds


def test_a_leash_that_differs_from_the_file_is_reported() -> None:
    def found(
        leash: dict[str, str] | None, made: float | None, held: LeashStatus | None
    ) -> list[str]:
        return list(leashes.differences(spec(leash), made, held))

    held, at = LeashStatus(None, NOON + HOUR), "ends at 2027-01-15 09:00:00 UTC"
    assert (
        found({"deadline": "1h"}, NOON, held)
        == found(None, None, held)
        == found(None, NOON, None)
        == []
    )

    assert found(None, NOON, held) == [f"leash: {at} now, none desired"]
    assert found({"deadline": "1h"}, NOON, None) == [f"leash: none now, {at} desired"]
    assert found({"deadline": "1h"}, NOON, replace(held, problem="it ended")) == ["leash: it ended"]


def test_a_deadline_that_is_over_is_refused(yard: Yard) -> None:
    yard.made = NOON - 365 * 24 * HOUR
    with pytest.raises(
        RequestError, match="the leash's deadline is over: it ends at 2026-01-15 09:00:00 UTC"
    ):
        yard.steps({"deadline": "1h"})[0].done()


def test_the_leash_of_a_cluster_that_is_gone_is_reported(yard: Yard) -> None:
    assert leashes.ended(yard.status("absent"), yard.site.state) == ""
    yard.steps(BOTH)[0].do()
    assert leashes.ended(yard.status("broken"), yard.site.state) == ""
    yard.held = None
    assert leashes.ended(yard.status("up"), yard.site.state) == ""
    # The cluster was gone hours before its deadline: not by its leash.
    said = leashes.ended(yard.status("absent"), yard.site.state)
    assert said.startswith("it is gone, and not by its leash (ends at ")
    record = yard.site.state / "leash.json"
    os.utime(record, (yard.made - 2 * HOUR, yard.made - 2 * HOUR))
    said = leashes.ended(yard.status("absent"), yard.site.state)
    assert said.startswith("it had a leash (ends at ")
    assert said.endswith("; outputs that were not fetched before it ended are lost")
    record.write_text(json.dumps({"idle": None, "deadline": yard.made}))
    assert leashes.ended(yard.status("broken"), yard.site.state).startswith(
        "it had a leash (ends at "
    )


def test_a_backend_without_one_refuses_it(tmp_path: Path) -> None:
    existing = {"address": "http://127.0.0.1:8265", "token_env": "TOKEN"}
    loaded = LoadedCluster(spec(BOTH, "existing", existing=existing), tmp_path / "lab.yaml")
    with pytest.raises(RequestError, match="a cluster of the backend 'existing' cannot end itself"):
        clusters.plan_up(Cluster(loaded, Site(tmp_path / "state", {}, "existing")))
