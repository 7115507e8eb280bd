from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from trainyard_runner.wire.plan import Task

from trainyard.errors import RequestError
from trainyard.spec.expand import expand
from trainyard.spec.load import load_job

LISTED = """\
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
"""


def tasks_of(directory: Path, text: str) -> tuple[Task, ...]:
    directory.mkdir(exist_ok=True)
    (directory / "job.yaml").write_text(text)
    return expand(load_job(directory))


def test_a_job_without_a_matrix_is_one_task_of_its_name(tmp_path: Path) -> None:
    assert [task.name for task in tasks_of(tmp_path / "train", "command: [a.py]\n")] == ["train"]


def test_the_last_key_of_a_matrix_changes_fastest(tmp_path: Path) -> None:
    tasks = tasks_of(
        tmp_path, "command: [a.py, '{seed}-{lr}']\nmatrix: {seed: [0, 1], lr: [0.1, 1e-5]}\n"
    )
    assert [task.name for task in tasks] == [
        "seed=0,lr=0.1",
        "seed=0,lr=1e-05",
        "seed=1,lr=0.1",
        "seed=1,lr=1e-05",
    ]
    assert tasks[3].command == ("a.py", "1-1e-05")


@pytest.mark.parametrize(
    ("argument", "matrix", "commands"),
    [
        # As YAML writes them.
        ("{x}", '{x: [true, 1, 1.0, no, "a b"]}', ["true", "1", "1.0", "no", "a b"]),
        ('{x} ${{HOME}} {{"a": {{}}}}', "{x: [1]}", ['1 ${HOME} {"a": {}}']),
        # A value with braces is not replaced again.
        ("{a}{b}", "{a: ['{b}'], b: [x]}", ["{b}x"]),
    ],
)
def test_the_values_of_a_matrix_stand_for_its_keys(
    argument: str, matrix: str, commands: list[str], tmp_path: Path
) -> None:
    tasks = tasks_of(tmp_path, f"command: [a.py, '{argument}']\nmatrix: {matrix}\n")
    assert [task.command[1] for task in tasks] == commands


def test_a_name_stays_on_its_line(tmp_path: Path) -> None:
    (task,) = tasks_of(tmp_path, 'command: [a.py, "{x}"]\nmatrix: {x: ["one\\ntwo\\e[31m"]}\n')
    assert (task.name, task.command[1]) == ("x=one\\x0atwo\\x1b[31m", "one\ntwo\x1b[31m")


def test_a_listed_task_inherits_omitted_keys_from_the_job(tmp_path: Path) -> None:
    job = {"A": "job", "B": "job"}
    own = {"A": "job", "B": "task"}
    assert tasks_of(tmp_path, LISTED) == (
        Task(
            0,
            "plain",
            ("a.py",),
            job,
            2.0,
            0.5,
            node_group="gpu",
            retries=3,
            timeout=300.0,
            outputs=("runs",),
        ),
        Task(1, "special", ("b.py", "{x}"), own, 2.0, 2.0, node_name="head", timeout=3600.0),
    )


@pytest.mark.parametrize(
    "matrix", ['{a: ["1,b=2", "1"], b: ["3", "2,b=3"]}', '{a: [0, 1, "0"], b: [0]}']
)
def test_names_that_would_be_the_same_are_refused(matrix: str, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"two tasks of the job .* would have the same name"):
        tasks_of(tmp_path, f'command: [a.py, "{{a}}{{b}}"]\nmatrix: {matrix}\n')


@pytest.mark.parametrize("gpus", ["0", "0.3333", "1.0", "4"])
def test_shares_below_one_and_whole_gpus_are_accepted(gpus: str, tmp_path: Path) -> None:
    assert tasks_of(tmp_path, f"command: [a.py]\nresources: {{gpus: {gpus}}}\n")[0].gpus == float(
        gpus
    )


@pytest.mark.parametrize(
    ("written", "share"), [("1", 1.0), ("0.5", 0.5), ("1/3", 1 / 3), ('"1/1"', 1.0)]
)
def test_a_share_of_a_node_is_a_number_or_one_part(
    written: str, share: float, tmp_path: Path
) -> None:
    assert (
        tasks_of(tmp_path, f"command: [a.py]\nresources: {{share: {written}}}\n")[0].share == share
    )


def test_a_share_and_amounts_replace_each_other(tmp_path: Path) -> None:
    text = (
        "tasks:\n  - {name: a, command: [a.py], resources: {gpus: 1}}\n  - {name: b, command: "
        "[a.py]}\n"
    )
    one, other = tasks_of(tmp_path, f"{text}resources: {{share: 0.5}}\n")
    assert (one.gpus, one.share, other.share) == (1.0, None, 0.5)
    one, other = tasks_of(
        tmp_path, f"{text.replace('gpus: 1', 'share: 1')}resources: {{cpus: 3}}\n"
    )
    assert (one.share, other.cpus, other.share) == (1.0, 3.0, None)


def test_outputs_are_in_their_shortest_form(tmp_path: Path) -> None:
    (task,) = tasks_of(tmp_path, "command: [a.py]\noutputs: [./runs/, a//b/./c, ..runs]\n")
    assert task.outputs == ("runs", "a/b/c", "..runs")


def test_a_directory_whose_name_is_no_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"it is the job's name, got \"my job\""):
        tasks_of(tmp_path / "my job", "command: [a.py]\n")


ADO = """\
uv: # One line for each plugin
  - ado-core
  - ${RAY_RUNTIME_ENV_CREATE_WORKING_DIR}/plugin-1.0-py3-none-any.whl
env_vars:
  PYTHONUNBUFFERED: "x"
  HOME: "/tmp"
"""


def test_a_runtime_env_file_is_read_unchanged_and_its_lines_are_named(tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    file = tmp_path / "runtime_env.yaml"
    job.write_text("command: [ado]\nruntime_env: runtime_env.yaml\n")
    file.write_text(ADO)
    env = load_job(tmp_path).runtime_env
    assert env.uv == (
        "ado-core",
        "${RAY_RUNTIME_ENV_CREATE_WORKING_DIR}/plugin-1.0-py3-none-any.whl",
    )
    assert env.env_vars == {"PYTHONUNBUFFERED": "x", "HOME": "/tmp"}
    file.write_text(f"{ADO}excludes: [data]\n")

    with pytest.raises(RequestError) as error:
        load_job(tmp_path)

    assert [str(problem) for problem in error.value.problems] == [
        (
            f"{file}:7: runtime_env.excludes: is a key of Ray's, not of a job file: write .rayignore "
            "into the job directory"
        )
    ]


RAYS_FORMS: list[tuple[str, dict[str, Any]]] = [
    ("pip: requirements.txt", {"pip": ("six", "attrs>=23")}),
    ("pip: ./requirements.txt", {"pip": ("six", "attrs>=23")}),
    ("uv: sub/more.txt", {"uv": ("numpy<2",)}),
    ("pip: [six]", {"pip": ("six",)}),
    ("pip: {packages: [six]}", {"pip": ("six",)}),
    (
        "pip: {packages: requirements.txt, pip_check: true}",
        {"install_options": {"pip_check": True}},
    ),
    (
        "uv: {packages: [six], uv_version: '==0.9.1', uv_pip_install_options: [--pre]}",
        {
            "uv": ("six",),
            "install_options": {"uv_version": "==0.9.1", "uv_pip_install_options": ["--pre"]},
        },
    ),
    ("config: {setup_timeout_seconds: 1800}", {"config": {"setup_timeout_seconds": 1800}}),
    ("conda: environment.yml", {"conda": {"dependencies": ["pip"]}}),
    ("conda: base", {"conda": "base"}),
    ("working_dir: .", {}),
]


@pytest.fixture
def rays(tmp_path: Path) -> Path:
    (tmp_path / "job.yaml").write_text("command: ['true']\nruntime_env: env.yaml\n")
    (tmp_path / "requirements.txt").write_text("# ours\nsix\n\nattrs>=23\n")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "more.txt").write_text("numpy<2\n")
    (tmp_path / "bad.txt").write_text("six\n-r requirements.txt\n")
    (tmp_path / "environment.yml").write_text("dependencies: [pip]\n")
    return tmp_path


def test_empty_install_options_are_no_error(rays: Path) -> None:
    text = "pip: {packages: [six], pip_version: '==24'}\ninstall_options:\n"
    (rays / "env.yaml").write_text(text)
    assert load_job(rays).runtime_env.install_options == {"pip_version": "==24"}


@pytest.mark.parametrize(("text", "expected"), RAYS_FORMS)
@pytest.mark.parametrize("is_file", [True, False])
def test_a_runtime_env_has_the_forms_that_ray_documents(
    text: str, expected: dict[str, Any], is_file: bool, rays: Path
) -> None:
    (rays / "env.yaml").write_text(text)
    if not is_file:
        (rays / "job.yaml").write_text(f"command: ['true']\nruntime_env: {{{text}}}\n")
    env = load_job(rays).runtime_env
    assert {key: getattr(env, key) for key in expected} == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "pip: numpy",
            "runtime_env.pip: no such file: {here}/numpy; a package is an entry of a list: [numpy]",
        ),
        (
            "pip: bad.txt",
            (
                "runtime_env.pip: bad.txt names a file of this machine, which no node has: -r "
                "requirements.txt"
            ),
        ),
        ("conda: gone.yml", "runtime_env.conda: no such file: {here}/gone.yml"),
        (
            "{uv: [six], install_options: {pip_version: '1'}}",
            "is not an option that Ray knows here; known: uv_check, ",
        ),
        ("pip: {packages: [six], pip_verion: '1'}", "runtime_env.pip: must be a list"),
    ],
)
def test_a_runtime_env_that_ray_could_not_read_is_refused_at_load(
    text: str, message: str, rays: Path
) -> None:
    (rays / "env.yaml").write_text(text)
    with pytest.raises(RequestError) as caught:
        load_job(rays)
    assert message.replace("{here}", str(rays)) in str(caught.value)
