"""Commands that some backends have nothing for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

# Docker's client opens a socket as it is imported.
import trainyard.backends.compose  # noqa: F401
from trainyard import backends
from trainyard.backends.contract import Site
from trainyard.errors import RequestError
from trainyard.operations import clusters
from trainyard.spec.cluster import ClusterSpec

SECTIONS: dict[str, Any] = {
    "existing": {"existing": {"address": "http://127.0.0.1:1", "token_env": "T"}}
}


@pytest.mark.parametrize("name", ["local", "existing"])
def test_a_cluster_that_runs_no_images_has_none_to_verify(tmp_path: Path, name: str) -> None:
    spec = ClusterSpec.model_validate({"name": "lab", "backend": name, **SECTIONS.get(name, {})})
    with pytest.raises(
        RequestError, match=rf"cluster lab \({name}\) runs no images: there is nothing to verify"
    ):
        backends.named(name).verify(spec, Site(tmp_path, {}, name), report=print)


@pytest.mark.parametrize("name", ["local", "compose", "existing"])
def test_a_backend_that_leaves_nothing_behind_says_so_and_removes_nothing(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / "clusters").mkdir()
    text = json.dumps({"name": "lab", "backend": name, **SECTIONS.get(name, {})})
    (tmp_path / "clusters" / "lab.yaml").write_text(text)
    cluster = clusters.find("lab", {"XDG_STATE_HOME": str(tmp_path)}, directory=tmp_path)
    cluster.site.state.mkdir(parents=True)
    with pytest.raises(RequestError) as caught:
        clusters.plan_down(cluster, purge=True)
    assert caught.value.lines() == [
        f"backend {name!r} has nothing to purge: `cluster.down` removes all that it made",
        "  -> Leave out --purge.",
    ]
    assert cluster.site.state.exists()
