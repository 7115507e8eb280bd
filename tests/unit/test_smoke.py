"""The smoke test, before anything is run on the cluster."""

from __future__ import annotations

import pytest

from trainyard import smoke
from trainyard.endpoint import BackendCheck, Endpoint
from trainyard.errors import SmokeError


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
    fine = BackendCheck("allocatable", "gpu-a", True, "host-2 offers 2")
    broken = BackendCheck("allocatable", "gpu-b", False, "host-3 offers 1", hint="Look at the host.")
    with pytest.raises(SmokeError) as caught:
        smoke.refuse_broken(Endpoint("lab", "http://127.0.0.1:1", checks=lambda: (fine, broken)))
    assert caught.value.lines() == [
        "smoke test failed: allocatable: host-3 offers 1",
        "  at gpu-b, cluster lab",
        "  -> Look at the host.",
    ]
