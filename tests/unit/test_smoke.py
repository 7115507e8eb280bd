"""The smoke test, before anything is run on the cluster."""

from __future__ import annotations

import pytest
from trainyard_runner.wire.events import Check

from trainyard.console.report import Table
from trainyard.dispatch import smoke
from trainyard.endpoint import Endpoint
from trainyard.errors import SmokeError
from trainyard.tasks.smoke import body


def test_a_node_that_is_known_not_to_run_is_told_at_once() -> None:
    down = (("cpu-0", "exited, exit code 137"),)
    with pytest.raises(SmokeError) as caught:
        smoke.refuse_broken(Endpoint("lab", "http://127.0.0.1:1", down=down))
    assert caught.value.lines() == [
        "smoke test failed: nodes: exited, exit code 137",
        "  at cpu-0, cluster lab",
        "  -> `trainyard cluster.up` starts what is missing, or says why it cannot.",
    ]


def test_a_rung_of_the_backend_that_fails_blocks_what_would_be_dispatched() -> None:
    fine = Check("allocatable", "gpu-a", True, "host-2 offers 2")
    broken = Check("allocatable", "gpu-b", False, "host-3 offers 1", hint="Look at the host.")
    with pytest.raises(SmokeError) as caught:
        smoke.refuse_broken(Endpoint("lab", "http://127.0.0.1:1", checks=lambda: (fine, broken)))
    assert caught.value.lines() == [
        "smoke test failed: allocatable: host-3 offers 1",
        "  at gpu-b, cluster lab",
        "  -> Look at the host.",
    ]


def rung(
    name: str, node: str | None, detail: str = "", *, ok: bool = True, skipped: bool = False
) -> Check:
    return Check(name, node, ok, detail, skipped=skipped)


def on_each(name: str, *details: str, **more: bool) -> list[Check]:
    return [
        rung(name, node, detail, **more)
        for node, detail in zip(("head", "cpu-0"), details, strict=True)
    ]


def test_equal_facts_of_nodes_and_tests_skipped_without_gpus_are_one_line() -> None:
    no_gpus = [
        rung("gpus", None, "no GPUs declared", skipped=True),
        *on_each("torch", "no GPUs on this node", "no GPUs on this node", skipped=True),
    ]

    checks = [
        rung("dashboard", None, "answers"),
        *on_each("nodes", "alive", "alive"),
        *on_each("task", "answered in 0.1 s", "answered in 0.2 s"),
        *on_each("versions", "Ray 2.60.0, Python 3.11.2", "Ray 2.60.0, Python 3.11.2"),
        *no_gpus,
        *on_each("transfer", "8 MB/s from the others", "9 MB/s from the others"),
        rung("disk", "head", "50 GiB free of 60 GiB"),
        rung("disk", "cpu-0", "no room: 1 GiB free", ok=False),
    ]

    table, *lines = body(checks)
    assert isinstance(table, Table)
    assert table.columns == ["node", "task", "transfer", "disk"]
    assert table.rows == [
        ["head", "0.1 s", "8 MB/s", "50 GiB free"],
        ["cpu-0", "0.2 s", "9 MB/s", "FAILED"],
    ]

    assert lines == [
        "on every node: nodes ok; versions Ray 2.60.0, Python 3.11.2",
        "dashboard: answers",
        "no GPUs: checks of GPUs skipped",
        "FAILED  disk on cpu-0: no room: 1 GiB free",
        "smoke: 10 checks ok, 1 failed",
    ]

    with_gpus = [check for check in checks if check not in no_gpus] + on_each(
        "gpus", "1 GPU", "none declared"
    )
    assert "no GPUs: checks of GPUs skipped" not in list(body(with_gpus))
