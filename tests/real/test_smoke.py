"""smoke.run on a real cluster: what it proves, what it leaves out, what it refuses."""

from __future__ import annotations

from tests.real.yard import Yard


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
    assert checks["dashboard", None]["detail"].endswith("refuses without the token")
