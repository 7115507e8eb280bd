"""Interrupt `cluster.up`: repeated, it makes a good cluster, and `down` leaves nothing."""

from __future__ import annotations

import signal
from collections.abc import Callable

from tests.real.yard import HEAD_AND_WORKER, Yard, wait_until


def _records(yard: Yard) -> int:
    return len(list((yard.state / "nodes").glob("*.json")))


def _head_listens(yard: Yard) -> bool:
    return any(process.info["name"] == "gcs_server" for process in yard.processes())


def _raylets(yard: Yard) -> int:
    return sum(process.info["name"] == "raylet" for process in yard.processes())


MOMENTS: dict[str, Callable[[Yard], bool]] = {
    "after the token": lambda yard: (yard.state / "token").exists(),
    "after all records": lambda yard: _records(yard) == 2,
    "when the head's GCS runs": _head_listens,
}


def _interrupt(yard: Yard, moment: str, number: signal.Signals) -> int:
    """Start `cluster.up`, send it a signal at this moment, and return its exit code."""
    command = yard.start("cluster.up")
    wait_until(
        lambda: MOMENTS[moment](yard) or command.poll() is not None,
        seconds=60,
        what=f"the moment {moment!r} came",
    )
    command.send_signal(number)
    command.communicate(timeout=30)
    return command.returncode


def test_up_after_a_killed_up_repairs_and_down_removes_a_half_made_cluster(fresh: Yard) -> None:
    fresh.write_cluster(HEAD_AND_WORKER)
    assert _interrupt(fresh, "after the token", signal.SIGKILL) == -signal.SIGKILL
    assert _interrupt(fresh, "when the head's GCS runs", signal.SIGKILL) == -signal.SIGKILL
    fresh.run("cluster.up")
    assert fresh.states() == {"head": "up", "cpu-0": "up"}
    assert _raylets(fresh) == 2
    fresh.run("cluster.down")
    assert fresh.leftovers() == []
    assert _interrupt(fresh, "after all records", signal.SIGINT) == 130
    fresh.run("cluster.down")
    assert fresh.leftovers() == []


def test_a_node_that_cannot_start_says_why_at_once(fresh: Yard) -> None:
    fresh.write_cluster(HEAD_AND_WORKER)
    broken = fresh.run("cluster.up", "--set", "env.RAY_gcs_storage=no-such-storage", expect=6)
    assert "head ended while it was starting; its last output:" in broken.stderr
    assert "no-such-storage" in broken.stderr
