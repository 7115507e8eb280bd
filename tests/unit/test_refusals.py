"""What some backends have nothing for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

# Docker's client opens a socket as it is imported.
import trainyard.backends.compose  # noqa: F401
from trainyard import lifecycle
from trainyard.backends import BACKENDS
from trainyard.backends.contract import Tools
from trainyard.errors import RequestError
from trainyard.spec.cluster import ClusterSpec

SECTIONS: dict[str, Any] = {"existing": {"existing": {"address": "http://127.0.0.1:1", "token_env": "T"}}}


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("local", "`cluster.down` removes everything that was made on this machine."),
        ("compose", "`cluster.down` removes everything that was made on the Docker host."),
        ("existing", "somebody else runs this cluster."),
    ],
)
def test_a_backend_that_leaves_nothing_behind_says_so(tmp_path: Path, name: str, why: str) -> None:
    spec = ClusterSpec.model_validate({"name": "lab", "backend": name, **SECTIONS.get(name, {})})
    with pytest.raises(RequestError) as caught:
        BACKENDS[name].down_steps(spec, Tools(tmp_path, {}, name), purge=True)
    assert caught.value.lines() == [f"backend {name!r} has nothing to purge: {why}", "  -> Leave out --purge."]


@pytest.mark.parametrize("name", ["local", "existing"])
def test_a_cluster_that_runs_no_images_has_none_to_verify(tmp_path: Path, name: str) -> None:
    spec = ClusterSpec.model_validate({"name": "lab", "backend": name, **SECTIONS.get(name, {})})
    with pytest.raises(RequestError, match=rf"cluster lab \({name}\) runs no images: there is nothing to verify"):
        BACKENDS[name].verify(spec, Tools(tmp_path, {}, name), report=print)


def test_a_purge_that_is_refused_removes_nothing(tmp_path: Path) -> None:
    (tmp_path / "clusters").mkdir()
    (tmp_path / "clusters" / "lab.yaml").write_text("name: lab\nbackend: local\n")
    cluster = lifecycle.find("lab", {"XDG_STATE_HOME": str(tmp_path)}, directory=tmp_path)
    cluster.tools.state.mkdir(parents=True)
    with pytest.raises(RequestError):
        lifecycle.plan_down(cluster, purge=True)
    assert cluster.tools.state.exists()
