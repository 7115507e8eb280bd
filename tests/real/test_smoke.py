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


def test_people_get_a_row_per_node_and_what_was_not_tested(yard: Yard) -> None:
    shown = yard.run("smoke.run").stdout
    rows = [line.split()[0] for line in shown.splitlines() if line.strip()]
    assert {"head", "gpu-0", "gpu-1"} <= set(rows)
    assert "not tested: torch (gpu-0, gpu-1): GPUs are simulated" in shown


def test_more_gpus_declared_than_ray_has_is_the_cause_that_is_named(yard: Yard) -> None:
    done = yard.run("smoke.run", "--set", "workers.0.gpus=3", expect=5)
    assert "FAILED  gpus on gpu-0: 3 declared, Ray has 2" in done.stdout
    assert done.stderr.splitlines()[-3:] == [
        "error: smoke test failed: gpus: 3 declared, Ray has 2",
        f"  at gpu-0, cluster {yard.cluster}",
        "  -> Repeat `invoke cluster.up`; the node was started with other resources.",
    ]
