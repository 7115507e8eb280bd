"""The real ado on each kind of node: a random walk, and a search by ado-ray-tune.

The job is jobs/ado as it is shipped, which brings its own experiments. Its packages come from the
index that pip uses here, onto every node; the bed's pods reach no index, so their image has them.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bed import images
from tests.bed.engine import BedEngine
from tests.bed.kubernetes import KubeBed
from tests.large.shipped import dispatched, log, resumed, stopped
from tests.real import kube as kubernetes
from tests.real.yard import Yard

# A CPU each for the search of Ray Tune, two trials and two experiments, besides the task's CPU.
NODES = {
    "head": {"cpus": 4, "memory": "3GiB"},
    "workers": [{"name": "cpu", "count": 1, "cpus": 4, "memory": "3GiB"}],
}
# A variable of the bed's images: where package registries are reached through a proxy, uv has to
# know the proxy's CA.
TRUST = {"SSL_CERT_FILE": str(images.HOST_CA)}
# Ray adds the address to a line that comes from another node than the script's.
ELSEWHERE = re.compile(r"pid=\d+, ip=[\d.]+\)\S* gains")
PAIRS = 48
TRIALS = 12
SEARCH = ("command=[bash, explore.sh, tune.yaml]", "resources={cpus: 1, actors: {cpus: 5}}")
FOR_SEARCH = (
    "runtime_env={uv: [ado-core==2.3.0, ado-ray-tune==2.2.0, typer==0.24.0, "
    "click==8.3.1], wheels: [experiments]}"
)
IN_THE_IMAGE = "runtime_env={wheels: [experiments]}"


def write(lab: Yard, **sections: object) -> None:
    """Write the cluster's file as JSON, which is YAML too."""
    path = lab.home / "clusters" / f"{lab.cluster}.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"name": lab.cluster, **NODES, **sections}))


@pytest.fixture
def containers(engine: BedEngine, tmp_path: Path) -> Iterator[Yard]:
    """Give two containers that have Ray and little else, and share no disk."""
    lab = Yard(tmp_path, cluster="ado", environ=engine.environ())
    write(lab, backend="compose", image=images.RAY, env=TRUST)
    with lab.up():
        yield lab


def measured(run: Path) -> list[dict[str, str]]:
    """Return the rows of all measurements that ado has written for its space."""
    (path,) = run.glob("outputs/*/measurements.csv")
    with path.open() as opened:
        return list(csv.DictReader(opened))


def walked(lab: Yard, *settings: str) -> Path:
    """Measure all pairs of gains; return the run."""
    walk = dispatched(lab, "ado", *settings)
    assert len(measured(walk)) == PAIRS
    return walk


def searched(lab: Yard, packages: str = FOR_SEARCH) -> Path:
    """Search for the gains that keep the pole upright the longest; return the run."""
    search = dispatched(lab, "ado", *SEARCH, packages)
    seconds = [float(row["seconds_upright"]) for row in measured(search)]
    assert 0 < len(seconds) <= TRIALS
    assert max(seconds) > 10
    return search


def test_ado_explores_and_searches_on_processes_of_this_machine(fresh: Yard) -> None:
    write(fresh, backend="local")
    with fresh.up():
        walked(fresh)
        searched(fresh)


def test_ado_explores_and_searches_in_containers(containers: Yard) -> None:
    assert ELSEWHERE.search(log(walked(containers)))
    searched(containers)


def test_ado_explores_and_searches_in_pods(kube: KubeBed, operator: None, tmp_path: Path) -> None:
    images.ensure_ado(kube.engine)
    kube.publish(images.ADO)
    lab = kubernetes.yard(kube, tmp_path, "ado")
    pods = {**NODES, "kuberay": {"spread": "required"}}
    kubernetes.write(kube, lab, pods, namespace="ado", image=images.ADO)
    with lab.up("--purge"):
        assert ELSEWHERE.search(log(walked(lab, IN_THE_IMAGE)))
        searched(lab, IN_THE_IMAGE)


def test_a_resumed_walk_measures_only_the_missing_pairs(containers: Yard) -> None:
    first = stopped(containers, "ado", at=r"Experiments completed: [1-9]")
    again = resumed(containers, first)
    # Measurements from before the stop are not repeated.
    assert 0 < log(again).count("Submitted experiment") < PAIRS
    assert len(measured(again)) == PAIRS
