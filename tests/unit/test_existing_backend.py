"""The way into another user's cluster: facts in, an endpoint out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.fake_ray import FakeRay
from trainyard.backends import existing
from trainyard.backends.contract import Site
from trainyard.backends.shared import logs
from trainyard.dispatch import smoke
from trainyard.endpoint import Endpoint
from trainyard.errors import PrerequisiteError
from trainyard.seams.ray_api import RayApi
from trainyard.spec.cluster import ClusterSpec


def _spec(**section: Any) -> ClusterSpec:
    return ClusterSpec.model_validate({"name": "lab", "backend": "existing", "existing": section})


def _site(tmp_path: Path, **environ: str) -> Site:
    return Site(tmp_path / "state", environ, "existing", source=tmp_path / "clusters" / "lab.yaml")


def test_the_token_comes_from_the_named_variable_or_file(tmp_path: Path) -> None:
    spec = _spec(address="http://127.0.0.1:8265/", token_env="LAB_TOKEN")
    endpoint = existing.connect(spec, _site(tmp_path, LAB_TOKEN=" s3cret\n"))
    # The nodes and the version of such a cluster are unknown.
    assert endpoint == Endpoint(
        "lab", "http://127.0.0.1:8265", "s3cret", expected=None, ray_version=None
    )
    assert "s3cret" not in repr(endpoint)
    (tmp_path / "clusters").mkdir()
    (tmp_path / "clusters" / "lab.token").write_text("abc\n")
    beside = _spec(address="http://127.0.0.1:8265", token_file="lab.token")
    assert existing.connect(beside, _site(tmp_path)).token == "abc"


def test_a_token_that_is_not_there_is_told_with_where_it_is_looked_for(tmp_path: Path) -> None:
    with pytest.raises(PrerequisiteError) as raised:
        existing.connect(
            _spec(address="http://127.0.0.1:8265", token_env="LAB_TOKEN"), _site(tmp_path)
        )

    assert str(raised.value) == (
        "the cluster's token is expected in $LAB_TOKEN, which is not set\n"
        f"  at {tmp_path}/clusters/lab.yaml\n"
        "  -> Set it without showing it: read -rs LAB_TOKEN && export LAB_TOKEN"
    )

    with pytest.raises(
        PrerequisiteError, match="the cluster's token cannot be read: No such file or directory"
    ):
        existing.connect(
            _spec(address="http://127.0.0.1:8265", token_file=str(tmp_path / "gone")),
            _site(tmp_path),
        )


@pytest.mark.parametrize(
    ("nodes", "state", "names"),
    [
        ([FakeRay.node("head"), FakeRay.node("old", "DEAD")], "up", ["head"]),
        ([FakeRay.node("old", "DEAD")], "partial", []),
    ],
    ids=["one that is gone", "all are gone"],
)
def test_a_node_that_ray_calls_dead_is_none(
    tmp_path: Path, dashboard: FakeRay, nodes: list[dict[str, Any]], state: str, names: list[str]
) -> None:
    dashboard.has(*nodes)
    now = existing.status(
        _spec(address="http://127.0.0.1:9", token_env="LAB_TOKEN"),
        _site(tmp_path, LAB_TOKEN="s3cret"),
    )
    assert (now.state, [node.name for node in now.nodes]) == (state, names)


def test_down_has_nothing_to_remove(tmp_path: Path) -> None:
    spec = _spec(address="http://127.0.0.1:8265", token_env="LAB_TOKEN")
    steps = existing.down_steps(spec, _site(tmp_path), purge=False)
    assert [(step.title, step.done().holds) for step in steps] == [
        ("Nothing to remove: Trainyard did not make this cluster", True)
    ]


@pytest.mark.parametrize(
    ("before", "now", "added"),
    [
        ([], ["a", "b"], ["a", "b"]),
        (["a", "b"], ["a", "b"], []),
        (["a", "b"], ["a", "b", "c"], ["c"]),
        (["a", "b", "c"], ["c", "d", "e"], ["d", "e"]),
        (["a", "b"], ["x", "y"], ["x", "y"]),
        (["a", "b"], [], []),
    ],
    ids=["first", "quiet", "grown", "slid on", "all new", "gone"],
)
def test_a_log_that_is_read_again_shows_only_its_new_lines(
    before: list[str], now: list[str], added: list[str]
) -> None:
    assert logs.added(before, now) == added


def test_a_ray_that_cannot_run_jobs_is_found_before_anything_is_sent(
    tmp_path: Path, dashboard: FakeRay
) -> None:
    dashboard.runs("2.10.0")
    spec = _spec(address="http://127.0.0.1:8265", token_env="T")
    message = "Ray 2.10.0 runs on this cluster, and the oldest supported version is"
    site = _site(tmp_path, T="secret")
    (finding,) = existing.diagnose(spec, site)
    assert (finding.subject, finding.message.startswith(message)) == ("lab", True)
    endpoint = existing.connect(spec, site)
    with RayApi(endpoint.address, None) as ray, pytest.raises(PrerequisiteError, match=message):
        smoke.dashboard(endpoint, ray)
    dashboard.runs("2.60.0")
    dashboard.has()
    assert existing.diagnose(spec, site) == []
