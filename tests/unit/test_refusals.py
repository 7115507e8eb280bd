"""What some backends have nothing for."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainyard import lifecycle
from trainyard.backends import compose, existing, local
from trainyard.backends.contract import Backend, Tools
from trainyard.errors import RequestError
from trainyard.spec.cluster import ClusterSpec


@pytest.mark.parametrize(
    ("backend", "what"),
    [
        (local, "'local' has nothing to purge: `cluster.down` removes everything that was made on this machine."),
        (
            compose,
            "'compose' has nothing to purge: `cluster.down` removes everything that was made on the Docker host.",
        ),
        (existing, "'existing' has nothing to purge: somebody else runs this cluster."),
    ],
)
def test_a_backend_that_leaves_nothing_behind_says_so(tmp_path: Path, backend: Backend, what: str) -> None:
    with pytest.raises(RequestError) as caught:
        backend.down_steps(ClusterSpec(name="lab", backend="local"), Tools(tmp_path, {}, "local"), purge=True)
    assert caught.value.lines() == [f"backend {what}", "  -> Leave out --purge."]


MUST_HAVE = {"existing": {"existing": {"address": "http://127.0.0.1:1", "token_env": "T"}}}


@pytest.mark.parametrize(("backend", "name"), [(local, "local"), (existing, "existing")])
def test_a_cluster_that_runs_no_images_has_none_to_verify(tmp_path: Path, backend: Backend, name: str) -> None:
    spec = ClusterSpec.model_validate({"name": "lab", "backend": name, **MUST_HAVE.get(name, {})})
    with pytest.raises(RequestError) as caught:
        backend.verify(spec, Tools(tmp_path, {}, "local"), report=print)
    assert caught.value.lines() == [
        f"cluster lab ({name}) runs no images: there is nothing to verify",
        "  -> Its nodes are not containers of ours. Name a cluster whose backend is compose or kuberay: "
        "invoke image.verify --backend compose",
    ]


def test_a_purge_that_is_refused_removes_nothing(tmp_path: Path) -> None:
    (tmp_path / "clusters").mkdir()
    (tmp_path / "clusters" / "lab.yaml").write_text("name: lab\nbackend: local\n")
    cluster = lifecycle.find("lab", {"XDG_STATE_HOME": str(tmp_path)}, directory=tmp_path)
    cluster.tools.state.mkdir(parents=True)
    with pytest.raises(RequestError):
        lifecycle.plan_down(cluster, purge=True)
    assert cluster.tools.state.exists()
