"""Commands that are refused before anything is sent."""

from __future__ import annotations

import pytest

from trainyard.dispatch import known_commands
from trainyard.paths import shipped
from trainyard.spec.expand import expand
from trainyard.spec.job import JobSpec
from trainyard.spec.load import load_job


def refused(*command: str) -> list[str]:
    """Return the first words of the messages about a job with this command, for its two tasks."""
    job = JobSpec.model_validate(
        {"name": "train", "command": (*command, "{seed}"), "matrix": {"seed": (0, 1)}}
    )
    found = list(known_commands.problems({task.name: task.command for task in expand(job)}))
    assert {problem.where for problem in found} <= {"command of task seed=0"}
    return [" ".join(problem.message.split()[:2]) for problem in found]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("schola-rllib --headless", ["Schola's interactive"]),
        ("python -m schola.scripts.ray.launch -t 1", ["Schola's interactive"]),
        ("python /opt/schola/schola/scripts/ray/launch.py", ["Schola's interactive"]),
        ("schola-sb3 -t 100 PPO", ["Schola's interactive"]),
        ("python -m schola.scripts.sb3.launch -p 8000", ["Schola's interactive"]),
        ("schola-train --num-cpus 4", ["--num-cpus starts"]),
        ("/usr/local/bin/schola-train --headless --num-cpus=4", ["--num-cpus starts"]),
        ("schola-train --num-cpus 4 --checkpoint-dir ./ckpt", ["--num-cpus starts", "a relative"]),
        ("schola-train --num-cpu 4", ["Schola 1.0.0's"]),
        ("schola-train --checkpoint ckpt", ["a relative"]),
        ("schola-train --checkpoint-dir=ckpt", ["a relative"]),
        (
            "schola-train --num-cpus-per-learner 2 --checkpoint-dir /mnt/ckpt --checkpoint-dir=/mnt",
            [],
        ),
        ("python train.py --num-cpus 4 --checkpoint-dir ckpt", []),
        (
            "schola-train --resume-from ckpt/1 --activation=gelu -x",
            ["a relative", "Schola 1.0.0's"],
        ),
        (
            (
                "schola-train -t3 --timestep 3 --learning-rate -1 -rllibv=1 --activation tanh "
                "--resume-from=/mnt/1"
            ),
            [],
        ),
        ("schola-train --num-env-runners 2 --check", []),
        ("env schola-train --flag-of-a-newer-one", []),
        ("schola-train --activation relu --headless APPO", ["Schola 1.0.0's"]),
        ("schola-train --using-cluster --gamma 0.99 IMPALA", ["Schola 1.0.0's"] * 3),
        ("env schola-train --using-cluster --gamma 0.99 IMPALA", []),
        ("bash -c", []),
        ("bash train.sh -t 1", []),
    ],
)
def test_only_schola_commands_that_fail_on_a_cluster_are_refused(
    command: str, said: list[str]
) -> None:
    assert refused(*command.split()) == said


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "python Schola/Resources/python/schola/scripts/ray/launch.py -t 1 --headless APPO",
            ["Schola's interactive"],
        ),
        ("cd /opt && SEED=1 exec schola-train --num-cpus 4 > log", ["--num-cpus starts"]),
        ("nvidia-smi; schola-train --gama 1 | tee log", ["Schola 1.0.0's"]),
        ("nvidia-smi\n  schola-train --gama 1\n", ["Schola 1.0.0's"]),
        ("schola-train --num-cpus 4 'and a quotation", []),
        ("echo schola-train --num-cpus 4; env schola-train --gama 1", []),
    ],
)
def test_a_command_in_a_shell_is_looked_at(line: str, said: list[str]) -> None:
    assert refused("bash", "-lc", line) == said


def test_unknown_flags_of_a_sweep_too_are_all_named() -> None:
    command = ("schola-train", "--timestps=3", "--headles-s", "--zzz", "--checkpoint-dir={where}")
    assert [
        problem.message.partition(" no flag ")[2].partition(";")[0]
        for problem in known_commands.problems({"trial": command})
    ] == [
        "--timestps",
        "--headles-s",
        "--zzz",
    ]


@pytest.mark.parametrize(
    "name", sorted(path.parent.name for path in shipped("jobs").glob("*/job.yaml"))
)
def test_the_jobs_that_we_ship_are_not_refused(name: str) -> None:
    commands = {task.name: task.command for task in expand(load_job(shipped("jobs") / name))}
    assert list(known_commands.problems(commands)) == []
