"""Programs that use Ray themselves: what takes longer than a test of every change may."""

from __future__ import annotations

from tests.real import matrix
from tests.real.jobs import newest
from tests.real.yard import Yard


def test_pip_installs_for_what_a_command_starts_through_ray_too(yard: Yard) -> None:
    directory = matrix.write(yard, "pip")
    yard.run("train.dispatch", directory.name, "--skip-smoke", expect=1)
    ours = matrix.found((newest(yard) / "logs" / f"{directory.name}.1.log").read_text())
    assert ours == matrix.everywhere(nodes=3)
