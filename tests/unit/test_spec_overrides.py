from __future__ import annotations

from pathlib import Path

import pytest

from trainyard.errors import RequestError
from trainyard.spec import ClusterSpec, load_cluster, load_job

FILE = """\
name: lab
backend: local
workers:
  - {name: gpu, count: 3, gpus: 1}
  - {name: cpu}
env: &env {A: "1"}
"""


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    path = tmp_path / "lab.yaml"
    path.write_text(FILE)
    return path


def overridden(path: Path, *overrides: str) -> ClusterSpec:
    return load_cluster(path, overrides=overrides).spec


def test_a_flag_wins_over_the_file_and_the_file_over_the_default(lab: Path) -> None:
    spec = overridden(lab, "workers.0.count=2")

    assert [group.count for group in spec.workers] == [2, 1]


def test_a_group_is_also_meant_by_its_name(lab: Path) -> None:
    assert overridden(lab, "workers.gpu.count=5").workers[0].count == 5


def test_a_flag_makes_the_sections_on_its_way(lab: Path) -> None:
    assert overridden(lab, "head.memory=4GiB").head.memory == 4 * 2**30


def test_an_empty_value_takes_a_value_away(lab: Path) -> None:
    assert overridden(lab, "image=schola", "image=").image is None


def test_a_value_is_yaml_and_may_hold_equals_signs(lab: Path) -> None:
    assert overridden(lab, "env.B=a=b", 'env.C="1"').env == {"A": "1", "B": "a=b", "C": "1"}


def test_the_backend_flag_wins_over_the_file(lab: Path) -> None:
    loaded = load_cluster(
        lab, overrides=("existing={address: http://127.0.0.1:8265, token_env: T}",), backend="existing"
    )

    assert loaded.spec.backend == "existing"


def test_a_wrong_backend_flag_is_located(lab: Path) -> None:
    with pytest.raises(RequestError) as refused:
        load_cluster(lab, backend="ec2")

    assert [str(problem) for problem in refused.value.problems] == [
        '--backend: must be one of: local, compose, kuberay, existing, got "ec2"'
    ]


def test_a_value_that_could_not_be_read_is_no_problem_once_a_flag_replaces_it(tmp_path: Path) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text("name: Lab\nbackend: local\n")

    assert overridden(path, "name=lab").name == "lab"


def test_a_flag_changes_one_use_of_an_alias_only(tmp_path: Path) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text("name: lab\nbackend: local\nworkers:\n  - &one {name: a, cpus: 1}\n  - *one\n")

    spec = overridden(path, "workers.1.name=b", "workers.1.cpus=2")

    assert [(group.name, group.cpus) for group in spec.workers] == [("a", 1), ("b", 2)]


def test_a_task_is_meant_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("tasks: [{name: a, command: [a.py]}, {name: b, command: [b.py]}]\n")

    tasks = load_job(tmp_path, overrides=["tasks.b.retries=4"]).tasks

    assert tasks is not None
    assert [task.retries for task in tasks] == [None, 4]
