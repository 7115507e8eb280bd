from __future__ import annotations

from pathlib import Path

import pytest

from trainyard.errors import RequestError
from trainyard.spec import JobSpec, TaskSpec, expand, load_job


def load(directory: Path, text: str) -> JobSpec:
    directory.mkdir(exist_ok=True)
    (directory / "job.yaml").write_text(text)
    return load_job(directory)


def tasks_of(tmp_path: Path, text: str) -> tuple[TaskSpec, ...]:
    return expand(load(tmp_path / "train", text))


def test_the_example_of_the_design_loads(tmp_path: Path) -> None:
    (tmp_path / "train" / "dist").mkdir(parents=True)
    (tmp_path / "train" / "dist" / "x.whl").write_bytes(b"")
    job = load(
        tmp_path / "train",
        """\
command: [python, train.py, "--seed", "{seed}"]
matrix: {seed: [0, 1, 2]}
resources: {cpus: 1, gpus: 0.5, memory: 2GiB}
together: false
retries: 2
timeout: 2h
env: {OMP_NUM_THREADS: "1"}
runtime_env: {uv: [gymnasium], wheels: [dist/x.whl]}
node: {group: gpu}
outputs: [runs/]
smoke: {gpus: true}
""",
    )

    assert job.name == "train"
    assert expand(job)[1] == TaskSpec(
        name="seed=1",
        command=("python", "train.py", "--seed", "1"),
        env={"OMP_NUM_THREADS": "1"},
        cpus=1.0,
        gpus=0.5,
        memory=2 * 2**30,
        node_name=None,
        node_group="gpu",
        retries=2,
        timeout=7200.0,
        outputs=("runs",),
    )


def test_a_job_without_a_matrix_is_one_task_of_its_name(tmp_path: Path) -> None:
    assert [task.name for task in tasks_of(tmp_path, "command: [a.py]\n")] == ["train"]


def test_the_last_key_of_a_matrix_changes_fastest(tmp_path: Path) -> None:
    tasks = tasks_of(tmp_path, "command: [a.py, '{seed}-{lr}']\nmatrix: {seed: [0, 1], lr: [0.1, 1e-5]}\n")

    assert [task.name for task in tasks] == ["seed=0,lr=0.1", "seed=0,lr=1e-05", "seed=1,lr=0.1", "seed=1,lr=1e-05"]
    assert tasks[3].command == ("a.py", "1-1e-05")


def test_values_of_a_matrix_are_text_as_yaml_writes_them(tmp_path: Path) -> None:
    tasks = tasks_of(tmp_path, 'command: [a.py, "{x}"]\nmatrix: {x: [true, 1, 1.0, no, "a b"]}\n')

    assert [task.command[1] for task in tasks] == ["true", "1", "1.0", "no", "a b"]


def test_doubled_braces_are_braces(tmp_path: Path) -> None:
    (task,) = tasks_of(tmp_path, "command: [sh, -c, 'echo ${{HOME}} {{\"a\": {{}}}}']\n")

    assert task.command[2] == 'echo ${HOME} {"a": {}}'


def test_a_value_with_braces_is_not_replaced_again(tmp_path: Path) -> None:
    (task,) = tasks_of(tmp_path, "command: [a.py, '{a}{b}']\nmatrix: {a: ['{b}'], b: [x]}\n")

    assert task.command[1] == "{b}x"


def test_a_name_stays_on_its_line(tmp_path: Path) -> None:
    (task,) = tasks_of(tmp_path, 'command: [a.py, "{x}"]\nmatrix: {x: ["one\\ntwo\\e[31m"]}\n')

    assert task.name == "x=one\\x0atwo\\x1b[31m"
    assert task.command[1] == "one\ntwo\x1b[31m"


def test_a_listed_task_takes_from_the_job_what_it_leaves_out(tmp_path: Path) -> None:
    plain, special = tasks_of(
        tmp_path,
        """\
resources: {cpus: 2, gpus: 0.5}
retries: 3
timeout: 5m
env: {A: job, B: job}
node: {group: gpu}
outputs: [runs]
tasks:
  - {name: plain, command: [a.py]}
  - name: special
    command: [b.py, "{{x}}"]
    resources: {gpus: 2}
    retries: 0
    timeout: 1h
    env: {B: task}
    node: {name: head}
    outputs: []
""",
    )

    assert plain == TaskSpec(
        "plain", ("a.py",), {"A": "job", "B": "job"}, 2.0, 0.5, None, None, "gpu", 3, 300.0, ("runs",)
    )
    assert special == TaskSpec(
        "special", ("b.py", "{x}"), {"A": "job", "B": "task"}, 2.0, 2.0, None, "head", None, 0, 3600.0, ()
    )


@pytest.mark.parametrize("matrix", ['{a: ["1,b=2", "1"], b: ["3", "2,b=3"]}', '{a: [0, 1, "0"], b: [0]}'])
def test_names_that_would_be_the_same_are_refused(matrix: str, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="two tasks of the job train would have the same name"):
        tasks_of(tmp_path, f'command: [a.py, "{{a}}{{b}}"]\nmatrix: {matrix}\n')


@pytest.mark.parametrize("gpus", ["0", "0.5", "0.3333", "1", "1.0", "4"])
def test_shares_below_one_and_whole_gpus_are_accepted(gpus: str, tmp_path: Path) -> None:
    assert tasks_of(tmp_path, f"command: [a.py]\nresources: {{gpus: {gpus}}}\n")[0].gpus == float(gpus)


@pytest.mark.parametrize(("written", "meant"), [("./runs/", "runs"), ("a//b/./c", "a/b/c"), ("..runs", "..runs")])
def test_outputs_are_in_their_shortest_form(written: str, meant: str, tmp_path: Path) -> None:
    assert tasks_of(tmp_path, f"command: [a.py]\noutputs: [{written}]\n")[0].outputs == (meant,)


def test_a_directory_whose_name_is_no_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"it is the job's name, got \"my job\""):
        load(tmp_path / "my job", "command: [a.py]\n")
