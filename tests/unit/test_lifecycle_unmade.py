"""A run may set nothing that its cluster was not made with."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainyard.backends.shared.record import write_made_from
from trainyard.errors import RequestError
from trainyard.operations import clusters

FILE = """\
name: lab
backend: local
workers: [{name: cpu, count: 1}]
"""


def refuse(place: Path, *overrides: str, made: tuple[str, ...]) -> None:
    """Refuse what a run says of a cluster that was made with these `--set`."""
    file = place / "lab.yaml"
    file.write_text(FILE)
    environ = {"XDG_STATE_HOME": str(place), "HOME": str(place)}
    cluster = clusters.find(str(file), environ, directory=place, overrides=overrides)
    cluster.site.state.mkdir(parents=True)
    write_made_from(cluster.site.state, file, made)
    clusters.refuse_unmade(cluster)


@pytest.mark.parametrize("override", ["name=lab", "workers.cpu.count=3", "workers.0.count=3"])
def test_an_override_without_effect_is_accepted_also_after_a_scale(
    tmp_path: Path, override: str
) -> None:
    refuse(tmp_path, override, made=("workers.cpu.count=3",))


def test_a_setting_the_cluster_lacks_is_refused_with_its_command(tmp_path: Path) -> None:
    with pytest.raises(RequestError) as refused:
        refuse(tmp_path, "workers.cpu.count=3", "env.A=a b", made=("workers.cpu.count=3",))
    assert (
        refused.value.what
        == "cluster lab was made without --set 'env.A=a b', and a run does not change it"
    )
    assert (refused.value.hint or "").endswith("--set workers.cpu.count=3 --set 'env.A=a b'")
