"""One directory per run: found by name, by its beginning, or because it is the newest."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.run_events import an_event
from trainyard.errors import OutsideError, RequestError
from trainyard.results import account, store
from trainyard.results.state import RunState


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for name, started in (
        ("zebra-1", "2026-01-01"),
        ("ant-1", "2026-01-02"),
        ("zebra-2", "2026-01-03"),
    ):
        store.create(
            tmp_path, {"run": name, "cluster": "lab", "started": started}, cluster="", job=""
        )
    (tmp_path / "something-else").mkdir()
    return tmp_path


def test_runs_are_listed_newest_first(home: Path) -> None:
    assert [run.name for run in store.runs(home)] == ["zebra-2", "ant-1", "zebra-1"]


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        # The night in which a clock goes back; a colleague's laptop; the same second.
        ("2026-10-25T02:59:30+02:00", "2026-10-25T02:00:10+01:00"),
        ("2026-11-27T12:00:00+09:00", "2026-11-27T03:00:01+00:00"),
        ("2026-11-27T12:00:00.100+00:00", "2026-11-27T12:00:00.200+00:00"),
        ("no moment at all", "2026-11-27T12:00:00+00:00"),
    ],
)
def test_the_newest_run_is_the_one_that_was_dispatched_last_in_any_zone(
    tmp_path: Path, earlier: str, later: str
) -> None:
    for name, started in (("a", later), ("b", earlier)):
        store.create(
            tmp_path, {"run": name, "cluster": "lab", "started": started}, cluster="", job=""
        )
    assert [run.name for run in store.runs(tmp_path)] == ["a", "b"]


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (None, "zebra-2"),
        ("ant-1", "ant-1"),
        ("a", "ant-1"),
        ("zebra-1", "zebra-1"),
        ("results/ant-1/", "ant-1"),
    ],
)
def test_a_run_is_found(home: Path, given: str | None, name: str) -> None:
    assert store.find(home, given).name == name


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            "zebra",
            "several runs begin with zebra\n  at {home}\n  - RUN: there are: zebra-2, zebra-1",
        ),
        (
            "amt-1",
            (
                "no such run: amt-1\n  at {home}\n  - RUN: there are: zebra-2, ant-1, zebra-1; did "
                "you mean 'ant-1'?"
            ),
        ),
        (
            "..",
            (
                "no such run: ..\n  at {home}\n  - RUN: there are: zebra-2, ant-1, zebra-1\n  -> "
                f"{store.KNOWN_IN}"
            ),
        ),
    ],
)
def test_a_run_name_that_matches_no_single_run_is_explained(
    home: Path, given: str, message: str
) -> None:
    with pytest.raises(RequestError) as caught:
        store.find(home, given)
    assert str(caught.value) == message.format(home=home)


def test_a_name_that_is_exactly_a_jobs_means_its_newest_run(home: Path) -> None:
    for name, job, started in (
        ("walk-1", "walk", "2026-02-01"),
        ("walk-2", "walk", "2026-02-03"),
        ("walk-far-1", "walk-far", "2026-02-04"),
        ("walk", "other", "2026-01-01"),
    ):
        record = {"run": name, "job": job, "cluster": "lab", "started": started}
        store.create(home, record, cluster="", job="")

    assert store.find(home, "walk-far").name == "walk-far-1"
    # A run's own name comes first, as it always did.
    assert store.find(home, "walk").name == "walk"
    (home / "walk" / "run.json").rename(home / "run.json")
    assert store.find(home, "walk").name == "walk-2"
    assert store.find(home, "jobs/walk/").name == "walk-2"

    with pytest.raises(RequestError, match="several runs begin with wal"):
        store.find(home, "wal")


def test_runs_of_one_cluster_are_found_among_all(home: Path) -> None:
    store.create(
        home, {"run": "zebra-0", "cluster": "other", "started": "2025"}, cluster="", job=""
    )
    assert [run.name for run in store.runs(home, cluster="other")] == ["zebra-0"]
    assert store.find(home, None, cluster="other").name == "zebra-0"
    assert store.find(home, "zebra", cluster="other").name == "zebra-0"
    with pytest.raises(RequestError, match="there are no runs yet on cluster third"):
        store.find(home, None, cluster="third")


@pytest.mark.parametrize(
    "moment", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-11:00", "yesterday", None, 7]
)
def test_a_moment_that_no_run_began_at_is_none(moment: object) -> None:
    assert store.started({"started": moment}) is None


def test_a_run_never_takes_the_place_of_another(home: Path) -> None:
    with pytest.raises(
        OutsideError, match=r"^results cannot be written, and nothing was started: file exists"
    ):
        store.create(home, {"run": "ant-1", "cluster": "other"}, cluster="", job="")
    assert store.find(home, "ant-1").record()["cluster"] == "lab"


def test_names_of_tasks_lead_nowhere_else(home: Path) -> None:
    run = store.find(home, "ant-1")
    assert run.outputs("../../etc").parent == run.path / "outputs"


def arrived(run: store.RunDirectory, content: str) -> Path:
    path = run.path / "checkpoints" / ".arrived"
    path.mkdir(parents=True)
    (path / "step").write_text(content)
    return path


def test_the_newest_checkpoint_has_its_task_s_name_and_an_older_says_so(home: Path) -> None:
    run = store.find(home, "ant-1")
    assert store.fetched(run.checkpoint("a")) == 0
    store.keep_checkpoint(run, "a", arrived(run, "first"), seq=7)
    store.keep_checkpoint(run, "a", arrived(run, "second"), seq=9)
    assert store.fetched(run.checkpoint("a")) == 9
    assert (run.checkpoint("a") / "step").read_text() == "second"
    assert (run.path / "checkpoints" / "a.older-than-9" / "step").read_text() == "first"
    run.checkpoint("a").rename(home / "elsewhere")
    assert store.fetched(run.checkpoint("a")) == 0


def test_a_run_that_cannot_be_recorded_is_an_error_with_its_directory(tmp_path: Path) -> None:
    (tmp_path / "results").touch()
    with pytest.raises(OutsideError) as caught:
        store.create(tmp_path / "results", {"run": "ant-1"}, cluster="", job="")
    assert (caught.value.what, caught.value.where) == (
        "results cannot be written, and nothing was started: not a directory",
        str(tmp_path / "results" / "ant-1"),
    )


def test_a_name_that_is_not_utf_8_is_kept_in_the_record(tmp_path: Path) -> None:
    left_out = [os.fsdecode(b"caf\xe9.txt")]
    sent = {"files": 1, "bytes": 1, "left_out": left_out, "left_out_count": 1}
    run = store.create(tmp_path, {"run": "a-1", "sent": sent}, cluster="", job="")
    assert run.record()["sent"] == sent
    state = RunState(run=run.name, cluster="", job="a", tasks=[])
    state.apply(an_event("run-ended", time=1.0, state="succeeded", exit=0, seconds=9.0))
    assert "1 left out (caf\\udce9.txt)" in account.extent(run, state)
