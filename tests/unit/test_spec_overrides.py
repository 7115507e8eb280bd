from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainyard.errors import RequestError
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.load import load_cluster, load_job

FILE = """\
name: lab
backend: local
workers:
  - &gpu {name: gpu, count: 3, gpus: 1}
  - *gpu
env: {A: "1"}
"""


def overridden(
    directory: Path, *overrides: str, text: str = FILE, backend: str | None = None
) -> ClusterSpec:
    (directory / "lab.yaml").write_text(text)
    # Both groups are one in the file: a flag changes one use of an alias.
    overrides = ("workers.1.name=cpu", *overrides)
    return load_cluster(directory / "lab.yaml", overrides=overrides, backend=backend).spec


@pytest.mark.parametrize("group", ["0", "gpu"])
def test_a_flag_wins_over_the_file_and_means_a_group_by_number_or_name(
    tmp_path: Path, group: str
) -> None:
    spec = overridden(tmp_path, f"workers.{group}.count=2")
    assert [(group.name, group.count) for group in spec.workers] == [("gpu", 2), ("cpu", 3)]


def test_a_flag_makes_the_sections_on_its_way(tmp_path: Path) -> None:
    assert overridden(tmp_path, "head.memory=4GiB").head.memory == 4 * 2**30


@pytest.mark.parametrize("nothing", ["image=", "image=null"])
def test_an_empty_value_takes_a_value_away(tmp_path: Path, nothing: str) -> None:
    assert overridden(tmp_path, "image=schola", nothing).image is None


def test_a_value_is_yaml_and_may_hold_equals_signs(tmp_path: Path) -> None:
    assert overridden(tmp_path, "env.B=a=b", 'env.C="1"').env == {"A": "1", "B": "a=b", "C": "1"}


def test_bytes_of_a_command_line_that_are_no_text_are_refused_by_their_key(tmp_path: Path) -> None:
    with pytest.raises(RequestError) as refused:
        overridden(tmp_path, "env.B=\udcff\udcfe")
    assert [str(problem) for problem in refused.value.problems] == [
        "--set env.B: is not UTF-8 text"
    ]
    (tmp_path / "job.yaml").write_text('command: [python, "\\ud800"]')
    with pytest.raises(RequestError, match=r"job.yaml:1: command.1: is not UTF-8 text"):
        load_job(tmp_path)


def test_the_backend_flag_wins_over_the_file_and_is_named_when_it_is_wrong(tmp_path: Path) -> None:
    section = "existing={address: http://127.0.0.1:8265, token_env: T}"
    text = FILE.replace('env: {A: "1"}\n', "")
    assert overridden(tmp_path, section, text=text, backend="existing").backend == "existing"
    with pytest.raises(RequestError) as refused:
        overridden(tmp_path, backend="ec3")
    assert [str(problem) for problem in refused.value.problems] == [
        (
            "--backend: must be one of: local, compose, kuberay, microk8s, ec2, existing, got "
            "\"ec3\"; did you mean 'ec2'?"
        )
    ]


def test_a_wrong_value_is_no_problem_once_a_flag_replaces_it(tmp_path: Path) -> None:
    assert overridden(tmp_path, "name=lab", text=FILE.replace("lab", "Lab")).name == "lab"


def test_a_task_is_meant_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(
        "tasks: [{name: a, command: [a.py]}, {name: b, command: [b.py]}]\n"
    )
    tasks = load_job(tmp_path, overrides=["tasks.b.retries=4"]).tasks
    assert [task.retries for task in tasks or ()] == [None, 4]


@pytest.mark.parametrize(
    "text", ["tulip #7", "1.10", "no", "{a: b}", "[", "a: b", "'", "# x", " two  spaces ", "0123"]
)
def test_a_key_that_takes_text_alone_gets_what_the_shell_gave(tmp_path: Path, text: str) -> None:
    assert overridden(tmp_path, f"env.A={text}").env == {"A": text}


@pytest.mark.parametrize("text", ["it's", 'a "b" #c', "back\\slash", "a\nb"])
def test_a_quoted_value_is_its_unquoted_text(tmp_path: Path, text: str) -> None:
    assert overridden(tmp_path, f"env.A={json.dumps(text)}").env == {"A": text}


@pytest.mark.parametrize("given", ["workers.gpu.count=3 # three", "head={memory: 4GiB} # more"])
def test_a_value_of_which_yaml_leaves_something_out_is_refused(tmp_path: Path, given: str) -> None:
    with pytest.raises(RequestError) as refused:
        overridden(tmp_path, given)
    assert "YAML leaves out what follows ' #'" in str(refused.value.problems[0])
    assert overridden(tmp_path, 'env={A: "x #y"}').env == {"A": "x #y"}
