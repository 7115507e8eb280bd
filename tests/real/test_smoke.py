"""smoke.run on a real cluster: what it proves, what it leaves out, what it refuses."""

from __future__ import annotations

import io

from tests.real.yard import Yard
from trainyard.endpoint import Endpoint, ExpectedNode
from trainyard.errors import SmokeError
from trainyard.progress import for_stream
from trainyard.seams.ray_api import RayApi
from trainyard.smoke import dashboard, smoke


def test_a_good_cluster_passes_every_rung_that_it_claims(yard: Yard) -> None:
    found = yard.json("smoke.run")
    assert found["ok"] is True
    checks = {(check["name"], check["node"]): check for check in found["checks"]}
    assert all(check["ok"] for check in checks.values())
    assert set(found["checks"][0]) == {"name", "node", "ok", "skipped", "detail", "seconds", "hint"}
    for node in ("head", "gpu-0", "gpu-1"):
        for rung in ("nodes", "task", "versions", "transfer", "disk", "shm"):
            assert not checks[rung, node]["skipped"]
    assert checks["gpus", "gpu-0"]["detail"] == "2, simulated; nvidia-smi not asked"
    assert checks["isolation", "gpu-1"]["detail"].endswith("only (simulated)")
    assert checks["torch", "head"]["skipped"]


def test_people_get_a_row_per_node_and_what_was_not_tested(yard: Yard) -> None:
    shown = yard.run("smoke.run").stdout
    rows = [line.split()[0] for line in shown.splitlines() if line.strip()]
    assert {"head", "gpu-0", "gpu-1"} <= set(rows)
    assert "not tested: torch (gpu-0, gpu-1): GPUs are simulated" in shown


def test_more_gpus_declared_than_ray_has_is_the_cause_that_is_named(yard: Yard) -> None:
    promised = tuple(ExpectedNode(name, "gpu", 2, 3) for name in ("gpu-0", "gpu-1"))
    endpoint = Endpoint("yard", yard.address(), yard.token(), simulated_gpus=True, expected=promised)
    found = smoke(endpoint, for_stream(io.StringIO()))
    assert isinstance(found.error, SmokeError)
    assert found.error.lines() == [
        "smoke test failed: gpus: 3 declared, Ray has 2",
        "  at gpu-0, cluster yard",
        "  -> Repeat `invoke cluster.up`; the node was started with other resources.",
    ]


def test_an_open_dashboard_is_never_called_safe(yard: Yard) -> None:
    """With a token that is not asked for, the first rung fails; here it is asked for."""
    endpoint = Endpoint("yard", yard.address(), yard.token())
    with RayApi(endpoint.address, endpoint.token) as ray:
        check = dashboard(endpoint, ray)
    assert check.ok
    assert check.detail.endswith("refuses without the token")


def test_dry_names_the_rungs_and_starts_nothing(yard: Yard) -> None:
    assert yard.json("--dry", "smoke.run")["would"][:3] == ["dashboard", "nodes", "task"]
