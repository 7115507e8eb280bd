"""What would be sent with a run is shown before."""

from __future__ import annotations

from pathlib import Path

from trainyard.dispatch.prepare import described, prepare
from trainyard.spec.cluster import ClusterSpec, LoadedCluster
from trainyard.spec.job import JobSpec

CLUSTER = LoadedCluster(ClusterSpec(name="lab", backend="local"), Path("clusters/lab.yaml"))


def test_what_is_sent_and_left_out_is_said_before(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("x" * 2048)
    (tmp_path / ".gitignore").write_text("*.log\n")
    for number in range(8):
        (tmp_path / f"{number}.log").write_text("")
    with (tmp_path / "weights.bin").open("wb") as sparse:
        sparse.truncate(30 * 1024 * 1024)
    job = JobSpec.model_validate({"name": "job", "command": ["true"]})
    assert list(described(prepare(CLUSTER, job, tmp_path))) == [
        "job job on cluster lab: 1 task",
        "sends 3 files, 30.0 MiB",
        "left out: 0.log (.gitignore), 1.log (.gitignore), 2.log (.gitignore), 3.log (.gitignore), "
        "4.log (.gitignore), 5.log (.gitignore) and 2 more",
    ]
