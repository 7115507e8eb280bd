"""Isaac Lab's own files run: a sweep of a JobCfg class, a task_runner file, an aggregate line."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import isaac_lab
from tests.real.jobs import newest
from tests.real.yard import Yard
from tests.standins import isaac_workflow

# The libraries of each of the two kinds of workflow. Their command lines after a retry are tested
# in tests/unit/test_isaac_task.py.
NEW, OLD = ("skrl", "sb3"), ("rl_games", "rsl_rl")


@dataclass(frozen=True)
class Isaac:
    """A directory laid out as Isaac Lab's: isaaclab.sh, and the scripts of its workflows."""

    script: Path

    @property
    def workflows(self) -> Path:
        return self.script.parent / "scripts" / "reinforcement_learning"

    @property
    def python(self) -> str:
        return f"{self.script} -p"


@pytest.fixture(scope="module")
def isaac(tmp_path_factory: pytest.TempPathFactory) -> Isaac:
    return Isaac(isaac_workflow.install(tmp_path_factory.mktemp("isaaclab")))


def logs(run: Path, task: str, attempt: int) -> str:
    return (run / "logs" / f"{task}.{attempt}.log").read_text()


def test_a_task_runner_file_runs_and_a_retry_resumes_the_newest_checkpoint(
    yard: Yard, isaac: Isaac
) -> None:
    tasks = [
        f"- {{name: {library}, py_args: {isaac.workflows / 'train.py'} --rl_library {library} "
        "--task Cartpole,"
        " num_gpus: 1/2, num_cpus: 0.5, memory: 64*1024*1024}"
        for library in NEW
    ]

    (yard.home / "new.yaml").write_text("\n".join(["tasks:", *tasks]))
    yard.run("train.import", "new.yaml", "--python", isaac.python)
    yard.run("train.dispatch", "new", "--set", "env.CRASH_AT='15'")
    run = newest(yard)

    for library in NEW:
        assert "There was an error running python" in logs(run, library, 1)
        assert f"train.py --rl_library {library} --task Cartpole --checkpoint latest" in logs(
            run, library, 2
        )
        assert re.search(
            r"Loading model checkpoint from: .*/logs/\w+/\w+/.*10", logs(run, library, 2)
        )
        checkpoints = run.glob(
            f"outputs/{library}/logs/**/{isaac_workflow.CHECKPOINTS[library].format('*')}"
        )
        assert {int(path.read_text()) for path in checkpoints} == {10, 20, 30}


def test_an_aggregate_line_runs_the_workflows_of_older_images(yard: Yard, isaac: Isaac) -> None:
    jobs = " + ".join(
        f"{isaac.python} {isaac.workflows / library / 'train.py'} --task Cartpole --headless "
        "agent.seed=1e+2"
        for library in OLD
    )

    line = (
        "--aggregate_jobs wrap_resources.py --cpu_per_worker 1 --gpu_per_worker 1 --sub_jobs "
        f"{jobs}"
    )
    (yard.home / "old.txt").write_text(line)
    yard.run("train.import", "old.txt")
    yard.run("train.dispatch", "old", "--set", "env.CRASH_AT='25'")
    run = newest(yard)

    for number, library in enumerate(OLD, 1):
        flag = "--resume" if library == "rsl_rl" else "--checkpoint /"
        assert f"{library}/train.py --task Cartpole --headless agent.seed=1e+2 {flag}" in logs(
            run, f"job-{number}", 2
        )
        assert "Loading model checkpoint from:" in logs(run, f"job-{number}", 2)


def test_a_cfg_file_that_cannot_be_loaded_is_an_error_with_pythons_reason(yard: Yard) -> None:
    (yard.home / "broken.py").write_text("import tuner\nimport no_such_module\n")
    why = "broken.py cannot be loaded: ModuleNotFoundError: No module named 'no_such_module'"
    assert why in yard.run("train.import", "broken.py", expect=2).stderr


def test_a_class_of_isaac_lab_is_a_sweep_whose_repeats_share_a_network(
    yard: Yard, isaac: Isaac
) -> None:
    cfg = isaac_lab.write(yard.home / "ray", "new")
    flags = [
        "--cfg_class",
        "CartpoleRGBJobCfg",
        "--rl_library",
        "rl_games",
        "--stopper",
        "CartpoleEarlyStopper",
    ]

    numbers = ["--num_samples", "9", "--repeat_run_count", "2", "--num_workers_per_node", "2"]
    yard.run(
        "train.import",
        str(cfg),
        *(
            *flags,
            *numbers,
            "--workflow",
            str(isaac.workflows / "train.py"),
            "--python",
            isaac.python,
        ),
    )

    yard.run(
        "tune.dispatch",
        "CartpoleRGBJobCfg",
        "--set",
        "env={ITERATION_SECONDS: '0.02', ENDLESS: '1'}",
    )

    status = yard.json("tune.status")
    assert status["counts"]["complete"] == len(status["trials"]) == 4
    run = newest(yard)

    for trial in status["trials"]:
        trained = [logs(run, task, 1) for task in trial["tasks"]]
        # Drop the number that differs for each process.
        networks = {re.sub(r"-rid \d+", "", text.partition("\n")[0]) for text in trained}
        assert len(networks) == 1 and f"--num_envs {trial['params']['num_envs']} " in networks.pop()
        ended = [
            "CartpoleEarlyStopper ended this trial in iteration 20" in text for text in trained
        ]
        assert ended == [trial["params"]["activation"] == "relu"] * 2

    assert status["best"]["params"]["activation"] == "relu"
