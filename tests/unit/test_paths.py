"""Where `-f` and JOB_DIR point to."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainyard import paths
from trainyard.errors import RequestError


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "clusters").mkdir()
    (tmp_path / "clusters" / "lab.yaml").write_text("name: lab\n")
    (tmp_path / "jobs" / "walk").mkdir(parents=True)
    (tmp_path / "jobs" / "walk" / "job.yaml").write_text("command: ['true']\n")
    return tmp_path


def test_a_bare_name_means_a_file_of_clusters_and_a_path_itself(here: Path) -> None:
    lab = here / "clusters" / "lab.yaml"
    assert paths.cluster_file("lab", {}, directory=here) == lab
    assert paths.cluster_file(None, {"TRAINYARD_CLUSTER": "lab"}, directory=here) == lab
    (here / "other.yaml").write_text("")
    assert paths.cluster_file("other.yaml", {}, directory=here) == here / "other.yaml"


def test_the_default_cluster_is_the_user_s_local_and_never_a_sample(here: Path) -> None:
    sample = paths.shipped("clusters") / "local.yaml"
    with pytest.raises(RequestError, match="no cluster file here") as caught:
        paths.cluster_file(None, {}, directory=here)
    assert caught.value.hint == "Name one: -f lab"
    with pytest.raises(RequestError) as caught:
        paths.cluster_file(None, {}, directory=here / "jobs")
    assert str(caught.value.hint).startswith("trainyard init makes a project here; ")
    assert paths.cluster_file("local", {}, directory=here) == sample
    assert paths.cluster_file(None, {}, directory=here, may_be_sample=True) == sample
    (here / "clusters" / "local.yaml").write_text("name: mine\n")
    assert paths.cluster_file(None, {}, directory=here) == here / "clusters" / "local.yaml"


def test_a_project_with_clusters_of_its_own_lists_no_samples(
    here: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert paths.listed_clusters(here) == ("lab",)
    assert "local" in paths.listed_clusters(here / "jobs")


def test_an_unknown_name_says_which_are_known(here: Path) -> None:
    with pytest.raises(RequestError) as caught:
        paths.cluster_file("labb", {}, directory=here)
    [problem] = caught.value.problems
    assert problem.where == "-f"
    # Samples are no clusters until the user makes them, and are not offered.
    assert problem.message == "'labb' is neither a path nor one of: lab; did you mean 'lab'?"
    assert caught.value.hint is None
    with pytest.raises(RequestError) as caught:
        paths.cluster_file("robots", {}, directory=here)
    assert caught.value.hint == "Make it: trainyard cluster.new robots"


def test_a_job_file_is_answered_with_its_directory(here: Path) -> None:
    (here / "jobs" / "walk" / "job.yaml").write_text("")
    with pytest.raises(RequestError) as caught:
        paths.job_directory("jobs/walk/job.yaml", directory=here)
    assert caught.value.hint == "JOB_DIR is its directory: jobs/walk"


def test_a_job_is_found_by_path_or_name_and_a_shipped_one_from_anywhere(here: Path) -> None:
    assert paths.job_directory("jobs/walk", directory=here) == here / "jobs" / "walk"
    assert paths.job_directory("walk", directory=here) == here / "jobs" / "walk"
    assert (
        paths.job_directory("jobs/cartpole", directory=here) == paths.shipped("jobs") / "cartpole"
    )


def test_state_lives_below_the_xdg_directory_and_else_below_home() -> None:
    assert paths.cluster_state("lab", {"XDG_STATE_HOME": "/s"}) == Path("/s/trainyard/clusters/lab")
    assert paths.cluster_state("lab", {"HOME": "/h"}) == Path(
        "/h/.local/state/trainyard/clusters/lab"
    )
