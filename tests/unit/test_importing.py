"""Isaac Lab's YAML files, command lines and cluster lists, as Trainyard jobs and cluster files."""

from __future__ import annotations

import json
import os
import shlex
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests import isaac_lab
from tests.unit.fake_programs import FakePrograms
from trainyard import backends
from trainyard.errors import RequestError
from trainyard.importing import Options, clusters, convert, job_cfg, separators
from trainyard.importing.job import Imported
from trainyard.importing.task_runner import number
from trainyard.spec.load import load_cluster, load_job

TASKS = """
    pip: [tqdm]
    py_modules: [my_package/my_package]
    concurrent: true
    tasks:
      - name: Isaac-Cartpole
        py_args: >-
          -m torch.distributed.run --nproc_per_node=2 /workspace/isaaclab/scripts/reinforcement_learning/train.py
          --rl_library rsl_rl --task=Isaac-Cartpole
        num_gpus: "2*2"
        num_cpus: 10
        memory: 10*1024*1024*1024
        node: {specific: hostname, hostname: gpu-0}
      - name: needs some packages
        py_args: "script.py --option '{a}'"
        num_gpus: 0
        node: {specific: node_id, node_id: 1a2b}
    """


def imported(tmp_path: Path, name: str, text: str) -> dict[str, Any]:
    """Convert a file; what it becomes is a job that can be loaded."""
    file = tmp_path / name
    file.write_text(textwrap.dedent(text))
    found = convert(file, (), Options(python="python"))
    assert not isinstance(found, clusters.Clusters)
    found.write(tmp_path / "jobs" / "made")
    load_job(tmp_path / "jobs" / "made")
    return found.job


def test_a_task_runner_file_becomes_tasks_with_its_resources(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("print()")
    assert imported(tmp_path, "tasks.yaml", TASKS) == {
        "tasks": [
            {
                "name": "Isaac-Cartpole",
                "command": [
                    *(
                        "python",
                        "isaac_task.py",
                        "resume",
                        "--",
                        "python",
                        "-m",
                        "torch.distributed.run",
                    ),
                    *(
                        "--nproc_per_node=2",
                        "/workspace/isaaclab/scripts/reinforcement_learning/train.py",
                    ),
                    *("--rl_library", "rsl_rl", "--task=Isaac-Cartpole"),
                ],
                "resources": {"cpus": 10, "gpus": 4, "memory": "10GiB"},
                "node": {"name": "gpu-0"},
                "outputs": ["logs/"],
                "retries": 1,
            },
            {
                "name": "needs-some-packages",
                "command": ["python", "script.py", "--option", "{{a}}"],
                "resources": {"gpus": 0},
                "node": {"name": "1a2b"},
            },
        ],
        "together": True,
        "runtime_env": {"pip": ["tqdm"], "files": [str(tmp_path / "my_package" / "my_package")]},
        "env": {"PYTHONPATH": "."},
    }

    names = {path.name for path in (tmp_path / "jobs" / "made").iterdir()}
    assert names == {"job.yaml", "isaac_task.py", "script.py"}


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("2*2", 4),
        ("10*1024*1024*1024", 10 * 2**30),
        (" -1 + 2 ** 3 ", 7),
        ("7//2 + 7%4", 6),
        (0.5, 0.5),
        ("1/4", 0.25),
    ],
)
def test_numbers_may_be_arithmetic(written: object, value: float) -> None:
    assert number(written) == value


@pytest.mark.parametrize(
    "written",
    [
        *(
            "__import__('os').getcwd()",
            "9**9**9",
            "10**65",
            "1e300*1e300",
            "2**-1",
            "1/0",
            "'a'*9",
            "[1]",
            "1j",
            "",
        ),
        *("1+" * 60 + "1", "(" * 95, True, None, "True", "x"),
    ],
)
def test_invalid_or_excessive_arithmetic_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match=r"must be a number, or arithmetic such as 10\*1024\*\*3"):
        number(written)


def test_every_problem_of_a_task_runner_file_is_said_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = """
        concurent: true
        tasks:
          - {name: a, py_args: a.py, memory: "open('x')", node: {specific: node_ip, node_ip: 192.0.2.1}}
          - {name: b, py_args: b.py, node: {specific: hostname}}
        """

    with pytest.raises(RequestError) as caught:
        imported(tmp_path, "tasks.yaml", text)

    assert [str(problem).removeprefix(f"{tmp_path}/") for problem in caught.value.problems] == [
        "tasks.yaml:2: concurent: is not a known key; did you mean 'concurrent'?",
        (
            "tasks.yaml:4: tasks.0.memory: must be a number, or arithmetic such as 10*1024**3, got "
            "\"open('x')\""
        ),
        "tasks.yaml:4: tasks.0.node.specific: must be one of: any, hostname, node_id, got "
        '"node_ip"; did you mean '
        "'node_id'?",
        "tasks.yaml:4: tasks.0.node.node_ip: is not a known key; did you mean 'node_id'?",
        "tasks.yaml:5: tasks.1.node.hostname: must be there, since `specific` is hostname",
    ]


@pytest.mark.parametrize(
    ("line", "commands"),
    [
        ("wrap_resources.py --sub_jobs a.py --x 1 + b.py", ["a.py --x 1", "b.py"]),
        (
            "wrap_resources.py --sub_jobs ./a.sh+b.py+python c.py --lr 1e+5 x=[1+2]",
            ["./a.sh", "b.py", "python c.py --lr 1e+5 x=[1+2]"],
        ),
        ("--sub_jobs 'a.py --x 1' + 'cd x && b.py'", ["a.py --x 1", "bash -c cd x && b.py"]),
        (
            "./isaaclab.sh -p scripts/reinforcement_learning/ray/submit_job.py --config_file ~/c "
            "--aggregate_jobs "
            "wrap_resources.py --sub_jobs a.py + b.py * train.py --task A",
            ["a.py", "b.py", "python train.py --task A"],
        ),
        ("--aggregate_jobs wrap_resources.py --test", ["nvidia-smi"]),
        ("--aggregate_jobs wrap_resources.py --test * a.py", ["nvidia-smi", "python a.py"]),
        (
            "uv run --extra ray python -m isaaclab_contrib.rl.ray.wrap_resources --num_workers 2 "
            "\\\n  --sub_jobs "
            "./isaaclab.sh -p scripts/reinforcement_learning/train.py --rl_library skrl  # twice",
            [
                "python isaac_task.py resume -- ./isaaclab.sh -p "
                "scripts/reinforcement_learning/train.py"
                " --rl_library skrl"
            ],
        ),
    ],
)
def test_a_command_line_becomes_one_task_for_each_sub_job(
    line: str, commands: list[str], tmp_path: Path
) -> None:
    job = imported(tmp_path, "line.txt", line)
    assert [" ".join(task["command"]) for task in job["tasks"]] == commands


AS_ISAAC_LAB = [
    (
        "python t.py --lr 1e-3 + python t.py --lr 1e-4",
        ["python t.py --lr 1e-3", "python t.py --lr 1e-4"],
    ),
    ("'python t.py' + 'python u.py'", ["python t.py", "python u.py"]),
    ("'python a.py + python b.py'", ["python a.py", "python b.py"]),
    (
        "'python t.py --lr 1e-3+python t.py --lr 1e-4'",
        ["python t.py --lr 1e-3", "python t.py --lr 1e-4"],
    ),
    (
        "'./i.sh -p A/t.py --headless+./i.sh -p B/t.py'",
        ["./i.sh -p A/t.py --headless", "./i.sh -p B/t.py"],
    ),
    (
        "./i.sh -p A/t.py --headless+./i.sh -p B/t.py",
        ["./i.sh -p A/t.py --headless", "./i.sh -p B/t.py"],
    ),
    ("nvidia-smi+nvidia-smi", ["nvidia-smi", "nvidia-smi"]),
    ("torchrun t.py+torchrun u.py", ["torchrun t.py", "torchrun u.py"]),
    ("'echo a+echo b'", ["echo a", "echo b"]),
    ("VAR=1 python a.py+VAR=2 python b.py", ["VAR=1 python a.py", "VAR=2 python b.py"]),
    ("'VAR=1 python a.py + VAR=2 python b.py'", ["VAR=1 python a.py", "VAR=2 python b.py"]),
    ("'a.py' + 'b.py + c.py'", ["a.py", "b.py", "c.py"]),
    ("python a.py+ python b.py", ["python a.py", "python b.py"]),
    ("python a.py +python b.py", ["python a.py", "python b.py"]),
    ("python a.py --e 1e+05+python b.py", ["python a.py --e 1e+05", "python b.py"]),
    ("a.py+b.py+c.py +", ["a.py", "b.py", "c.py"]),
    # A sign inside a value is no separator, as it is there: that would be no program.
    (
        "python c.py --lr 1e+5 x=[1+2] y=(a+b) z=2+3",
        ["python c.py --lr 1e+5 x=[1+2] y=(a+b) z=2+3"],
    ),
]
TWO_READINGS = [
    ("python c.py +key=1", "[python c.py]   [key=1]"),
    ("python c.py --mode=a+b", "[python c.py --mode=a]   [b]"),
    ("python a.py --words 'x + y'", "[python a.py --words x]   [y]"),
    ("'python a.py +' 'python b.py'", "[python a.py]   [python b.py]"),
    ("g++ x.cpp", "[g]   [x.cpp]"),
]


@pytest.mark.parametrize(("line", "expected"), AS_ISAAC_LAB)
def test_sub_jobs_are_cut_where_isaac_lab_cuts(line: str, expected: list[str]) -> None:
    assert [" ".join(job) for job in separators.jobs(shlex.split(line), "+")] == expected


@pytest.mark.parametrize(("line", "apart"), TWO_READINGS)
def test_sub_jobs_with_two_readings_show_both(line: str, apart: str) -> None:
    words = shlex.split(line)
    with pytest.raises(RequestError, match="can be read in two ways") as caught:
        separators.jobs(words, "+")
    assert [problem.message for problem in caught.value.problems] == [shlex.join(words), apart]


def test_aggregate_jobs_are_cut_likewise() -> None:
    whole = ["wrap_resources.py --sub_jobs python a.py + python b.py * train.py --task A"]
    assert [len(job) for job in separators.jobs(whole, "*")] == [7, 3]
    with pytest.raises(RequestError, match="can be read in two ways"):
        separators.jobs(["a.py", "--files", "data/*.csv"], "*")


def test_a_script_with_one_command_line_is_read_and_its_rest_is_named(tmp_path: Path) -> None:
    script = """\
        #!/bin/bash
        cd /workspace
        python3 submit_job.py --aggregate_jobs "wrap_resources.py --sub_jobs
            python a.py --task $TASK + python b.py"
        echo done
        """

    (tmp_path / "nightly.sh").write_text(textwrap.dedent(script))
    found = convert(tmp_path / "nightly.sh", (), Options())
    assert isinstance(found, Imported)
    assert [task["command"] for task in found.job["tasks"]] == [
        ["bash", "-c", "python a.py --task $TASK"],
        ["python", "b.py"],
    ]
    assert found.notes == (
        "$TASK is expanded on the node, where only `env:` of the job can set it.",
        "not read: cd /workspace",
        "not read: echo done",
    )


FOREIGN = [
    ("apiVersion: ray.io/v1\nkind: RayCluster\nspec: {}\n", "a RayCluster of KubeRay"),
    ("apiVersion: ray.io/v1alpha1\nkind: RayJob\nspec: {}\n", "a RayJob or RayService of KubeRay"),
    ("apiVersion: v1\nkind: Pod\n---\napiVersion: v1\nkind: Service\n", "an object of Kubernetes"),
    ("cluster_name: lab\nprovider: {type: aws}\n", "a cluster file of `ray up`"),
    ("name: walk\nresources: {accelerators: 'L4:1'}\nrun: python walk.py\n", "a task of SkyPilot"),
    ("run: python walk.py\n", "a task of SkyPilot"),
    ("name: all\n---\nname: a\nrun: python a.py\nresources: {}\n", "a task of SkyPilot"),
    ("type: task\nname: walk\ncommands: [python walk.py]\n", "a task of dstack"),
    ("type: volume\nname: data\nbackend: aws\n", "a fleet, volume or gateway of dstack"),
    (
        "method: bayes\nparameters: {lr: {min: 0}}\ncommand: [python, a.py]\n",
        "a sweep of Weights & Biases",
    ),
    ("$schema: https://azuremlschemas.example/job\ncommand: python a.py\n", "a job of Azure ML"),
    ("name: j\nentrypoint: python a.py\nimage_uri: x\n", "a job of Anyscale"),
    ("applications: [{name: a, import_path: 'a:app'}]\n", "a configuration of Ray Serve"),
    ("pip: [torch]\nenv_vars: {A: b}\nworking_dir: .\n", "a runtime_env of Ray"),
    ("cartpole-ppo: {env: CartPole-v1, run: PPO}\n", "a file of `rllib train`"),
    ("image: {}\nhead: {}\nworker: {}\n", "a values file of KubeRay's chart"),
    ("services: {train: {image: x, command: python a.py}}\n", "a file of Docker Compose"),
    ("defaults: [_self_]\nlr: 0.1\n", "a configuration of Hydra"),
    ("channels: [conda-forge]\ndependencies: [python=3.11]\n", "an environment of conda"),
    ("params: {algo: {name: a2c}}\n", "a configuration of rl_games"),
    (
        "apiVersion: v1\nkind: ConfigMap\n---\napiVersion: ray.io/v1\nkind: RayCluster\n",
        "a RayCluster of KubeRay",
    ),
    (
        "apiVersion: v1\nkind: List\nitems: [{apiVersion: ray.io/v1, kind: RayCluster}]\n",
        "a RayCluster of KubeRay",
    ),
    ("name: a\nbackend: local\n", "a cluster file of Trainyard"),
    ("command: [python, walk.py]\n", "a job file of Trainyard"),
]


@pytest.mark.parametrize(("text", "kind"), FOREIGN)
def test_a_file_of_another_tool_is_named_with_what_takes_it_here(
    text: str, kind: str, tmp_path: Path
) -> None:
    with pytest.raises(RequestError) as caught:
        imported(tmp_path, "file.yaml", text)
    assert (
        caught.value.what
        == f"{tmp_path}/file.yaml is {kind}: train.import reads files of Isaac Lab"
    )
    assert caught.value.hint


@pytest.mark.parametrize(
    "mistake", ["dependencies: [numpy]", "defaults: [a]", "hydra: {}", "services: {a: {}}"]
)
def test_a_mistake_in_a_file_of_trainyard_makes_it_no_other_tools(
    mistake: str, tmp_path: Path
) -> None:
    key = mistake.partition(":")[0]
    for text in ("command: [a]\n", "tasks: [{name: a, command: [a]}]\n"):
        (tmp_path / "job.yaml").write_text(f"{text}{mistake}\n")
        with pytest.raises(RequestError, match="the job file is wrong") as caught:
            load_job(tmp_path)
        assert [
            problem.where.rpartition(" ")[2]
            for problem in caught.value.problems
            if key in str(problem)
        ]
    (tmp_path / "cluster.yaml").write_text(f"name: a\nbackend: local\n{mistake}\n")
    with pytest.raises(RequestError, match="the cluster file is wrong: 1 problem"):
        load_cluster(tmp_path / "cluster.yaml")


@pytest.mark.parametrize(
    "text",
    [
        f"a: {'[' * 20_000}{']' * 20_000}\n",
        "a: !!timestamp x\n",
        f"a: {'b' * 1_100_000}\n",
        "a: ? [b]: c\n",
    ],
)
def test_a_file_that_is_no_plain_yaml_is_a_wrong_cluster_file(text: str, tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(text)
    with pytest.raises(RequestError, match="the cluster file is wrong"):
        load_cluster(tmp_path / "cluster.yaml")


@pytest.mark.parametrize("text", ["a: {b: c}\n", "- hosts: all\n  roles: [ray]\n", "text\n"])
def test_another_yaml_file_is_not_called_a_wrong_one_of_task_runner(
    text: str, tmp_path: Path
) -> None:
    with pytest.raises(RequestError, match="is not a file for Isaac Lab's task_runner"):
        imported(tmp_path, "file.yaml", text)


def test_no_text_is_folded(tmp_path: Path) -> None:
    (tmp_path / "line.txt").write_text(f"--sub_jobs python b.py --words '{'long words ' * 30}'")
    assert "long words " * 30 in convert(tmp_path / "line.txt", (), Options()).text


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("tasks.yaml", "pip: [tqdm]\ntask: []\n", "the task_runner file is wrong: 2 problems"),
        ("missing.yaml", None, "no such file: "),
        ("missing.py", None, "no such file: "),
        ("x" * 300, None, "cannot read "),
        ("a\0b", None, "cannot read "),
        (".", None, " is no regular file"),
    ],
)
def test_a_missing_unreadable_or_wrong_file_is_refused(
    name: str, text: str | None, message: str, tmp_path: Path
) -> None:
    if text:
        (tmp_path / name).write_text(text)
    with pytest.raises(RequestError) as caught:
        convert(tmp_path / name, (), Options())
    assert message in caught.value.what


def test_a_pipe_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    with pytest.raises(RequestError, match=r"pipe\.yaml is no regular file"):
        convert(tmp_path / "pipe.yaml", (), Options())


def test_files_outside_of_the_yaml_file_s_directory_stay_there(tmp_path: Path) -> None:
    place = tmp_path / "ray"
    (place / "c").mkdir(parents=True)
    (tmp_path / "secret.py").write_text("print()")
    (place / "link.py").symlink_to(tmp_path / "secret.py")
    (place / "near.py").write_text("print()")
    words = "c/../near.py c/../../secret.py ../secret.py link.py " + "x" * 300
    (place / "tasks.yaml").write_text(f"tasks: [{{name: a, py_args: {words}}}]")
    found = convert(place / "tasks.yaml", (), Options(python="python"))
    assert isinstance(found, Imported)
    assert dict(found.files) == {"near.py": place / "near.py"}
    assert found.job["tasks"][0]["command"][:3] == ["python", "near.py", "c/../../secret.py"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("../../tasks.py", "../../tasks.py lies outside of the job's directory, and is not copied"),
        ("/etc/passwd", "/etc/passwd lies outside of the job's directory, and is not copied"),
        ("job.yaml", "job.yaml would take the place of the job file, which has that name"),
        (
            "a/../job.yaml",
            "a/../job.yaml would take the place of the job file, which has that name",
        ),
    ],
)
def test_an_import_writes_below_its_directory_and_never_over_its_job_file(
    name: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "source").write_text("command: [curl, evil]")
    found = Imported(
        "made", {"command": ["true"]}, {"near.py": tmp_path / "source", name: tmp_path / "source"}
    )
    with pytest.raises(RequestError) as caught:
        found.write(tmp_path / "jobs" / "made")
    assert caught.value.what == message
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


@pytest.mark.parametrize(
    ("flags", "resources"),
    [
        (
            "--gpu_per_worker 1 2 --ram_gb_per_worker 16",
            [{"gpus": n, "memory": "16GiB"} for n in (1, 2, 2)],
        ),
        ("--num_workers 2 3", [{"share": "1/2"}, {"share": "1/3"}, {"share": "1/3"}]),
        ("", [{"share": 1}] * 3),
    ],
)
def test_each_sub_job_gets_its_own_value_of_a_flag_or_the_last_else_a_node(
    flags: str, resources: list[dict[str, Any]], tmp_path: Path
) -> None:
    job = imported(tmp_path, "line.txt", f"wrap_resources.py {flags} --sub_jobs a.py + b.py + c.py")
    assert [task["resources"] for task in job["tasks"]] == resources
    assert job.get("smoke", {}) == ({} if "gpus" in resources[0] else {"gpus": True})


def test_a_flag_that_means_nothing_here_is_named(tmp_path: Path) -> None:
    line = (
        "--mlflow_uri x --aggregate_jobs wrap_resources.py --ray_address y --gpu_per_worker 1 "
        "--sub_jobs a.py"
    )
    (tmp_path / "line.txt").write_text(f"submit_job.py {line}")
    found = convert(tmp_path / "line.txt", (), Options())
    assert [note.split()[0] for note in found.notes] == [
        "cpu_per_worker",
        "ray_address",
        "mlflow_uri",
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("echo hello", "this is no command line of Isaac Lab's Ray scripts"),
        ("python launch.py --image x", "launch.py runs no job"),
        ("grok_cluster_with_kubectl.py --prefix a", "grok_cluster_with_kubectl.py runs no job"),
        ("mlflow_to_local_tensorboard.py --uri a", "mlflow_to_local_tensorboard.py runs no job"),
        (
            "wrap_resources.py --sub_jobs 'a.py \"b'",
            "a job in quotes cannot be read: No closing quotation",
        ),
        (
            (
                "cd /x\nsubmit_job.py --aggregate_jobs a.py\npython3 submit_job.py --aggregate_jobs "
                "b.py\n"
            ),
            "{here}/line.txt has 2 command lines of Isaac Lab's Ray scripts",
        ),
        ("wrap_resources.py --sub_jobs", "wrap_resources.py: it needs --sub_jobs, or --test"),
        (
            "task_runner.py --task_cgf x",
            "task_runner.py: the following arguments are required: --task_cfg",
        ),
        (
            "wrap_resources.py --num_workers 0 --sub_jobs a.py",
            "wrap_resources.py: num_workers must be at least 1",
        ),
        (
            "wrap_resources.py --num_workers 2 --gpu_per_worker 1 --sub_jobs a.py",
            ("wrap_resources.py: give either num_workers or gpu_per_worker, as for Isaac Lab"),
        ),
        (
            "name: a address: http://127.0.0.1:1\nname: Could not",
            "line.txt: a line is not `name: NAME address:",
        ),
        ("name: a address: 127.0.0.1:8265", "line.txt: a line is not `name: NAME address:"),
        (
            "# mine\nname: a address: http://127.0.0.1:1 x",
            "line.txt: a line is not `name: NAME address: http://IP:PORT`: #",
        ),
    ],
)
def test_a_line_that_means_nothing_here_is_refused(line: str, message: str, tmp_path: Path) -> None:
    message = message.replace("{here}", str(tmp_path))
    with pytest.raises(RequestError) as caught:
        imported(tmp_path, "line.txt", line)
    assert caught.value.what.startswith(message)


def test_a_cluster_list_becomes_cluster_files(tmp_path: Path) -> None:
    lines = (
        "name: isaac_0 address: http://127.0.0.1:8265 of Ann\n\nname: far address: "
        "http://192.0.2.10:8265\n"
    )
    found = clusters.read(lines, name=".cluster_config")
    assert found and len(found.notes) == 1
    files = found.write(tmp_path)
    assert [path.name for path in files] == ["isaac-0.yaml", "far.yaml"]
    near, far = (load_cluster(path).spec for path in files)
    assert (near.auth, near.existing and near.existing.address) == ("none", "http://127.0.0.1:8265")
    assert (far.auth, far.existing and far.existing.token_env) == ("token", "RAY_AUTH_TOKEN")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("a", "A"), ".cluster_config: several lines name the cluster a: rename one"),
        (("---",), ".cluster_config: '---' cannot be a cluster's name: it has no letter or digit"),
    ],
)
def test_no_cluster_of_a_list_is_lost_without_a_word(names: Sequence[str], message: str) -> None:
    lines = "\n".join(f"name: {name} address: http://127.0.0.1:8265" for name in names)
    with pytest.raises(RequestError) as caught:
        clusters.read(lines, name=".cluster_config")
    assert caught.value.what == message


def test_a_cluster_file_that_is_refused_does_not_stay(tmp_path: Path) -> None:
    found = clusters.Clusters(
        {"good": backends.file_for_address("good", "http://127.0.0.1:1"), "bad": "name: 7"}
    )
    with pytest.raises(RequestError):
        found.write(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_cluster_files_that_cannot_be_written_are_one_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    texts = {"good": backends.file_for_address("good", "http://127.0.0.1:1")}
    found = clusters.Clusters(texts)
    with pytest.raises(RequestError, match=r"cannot write .*/file: File exists"):
        found.write(tmp_path / "file")


def test_a_class_becomes_a_sweep_that_counts_configurations(
    tmp_path: Path, started: FakePrograms
) -> None:
    described = {**isaac_lab.DESCRIBED, "draws": True, "ends_sweep": True}
    started.answer((0, f"isaac_task.py: {json.dumps(described)}"))
    (tmp_path / "tuning").mkdir()
    (tmp_path / "tuning" / "cfg.py").touch()
    options = Options(num_samples=20, num_workers_per_node=2, stopper="CartpoleEarlyStopper")
    found = job_cfg.read(tmp_path / "tuning" / "cfg.py", options)
    assert found.job["resources"] == {"share": "1/2"}

    assert found.job["command"] == [
        *(
            "python",
            "isaac_task.py",
            "run",
            "--cfg_file",
            "tuning/cfg.py",
            "--cfg_class",
            "CartpoleTheiaJobCfg",
        ),
        *("--python", "/workspace/isaaclab/isaaclab.sh -p", "--stopper", "CartpoleEarlyStopper"),
        *("--draw", "{draw}", "--", "num_envs={num_envs}"),
    ]

    assert found.job["tune"] == {
        "space": {"num_envs": {"choice": [512, 1024]}, "draw": {"randint": [0, 2**31 - 1]}},
        "metric": "rewards/time",
        "mode": "max",
        "samples": 6,
        "repeats": 3,
        "silence": "200s",
    }

    assert [note.split(" ")[0] for note in found.notes] == ["num_samples", "stop_all", "The"]
    assert found.notes[0] == "num_samples counts repeats: 20 is 6 configurations, 3 times each."


@pytest.mark.parametrize("name", ["num_workers_per_node", "num_samples", "repeat_run_count"])
def test_a_number_of_trainings_below_one_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "cfg.py").write_text("")
    asked: Any = {name: 0}
    with pytest.raises(RequestError, match=f"{name} must be at least 1, got 0"):
        convert(tmp_path / "cfg.py", (), Options(**asked))


def test_variables_before_a_sub_job_are_its_environment(tmp_path: Path) -> None:
    line = (
        "wrap_resources.py --sub_jobs 'MODE=offline LIST={a} ./i.sh -p walk.py' + "
        "OMP_NUM_THREADS=4 python stand.py"
    )
    tasks = imported(tmp_path, "line.txt", line)["tasks"]
    assert [task.get("env") for task in tasks] == [
        {"MODE": "offline", "LIST": "{{a}}"},
        {"OMP_NUM_THREADS": "4"},
    ]
    assert not any("=" in word for task in tasks for word in task["command"])


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        (
            "ray job submit --runtime-env-json={} -- bash x.sh",
            "the words after -- become `command:`",
        ),
        ("RAY_ADDRESS=http://a:1 ray job submit -- python a.py", "the words after --"),
        ("ray submit cluster.yaml train.py", "The program is the `command:` of a job.yaml"),
        ("ray up cluster.yaml", "trainyard cluster.import FILE"),
        ("rllib train file a.yaml", "jobs/rllib trains with RLlib; its command is"),
    ],
)
def test_a_line_of_another_program_is_told_where_its_words_belong(line: str, hint: str) -> None:
    with pytest.raises(RequestError) as caught:
        convert(None, line.split(), Options())
    assert "is no line of Isaac Lab's Ray scripts" in caught.value.what
    assert hint in (caught.value.hint or "")
