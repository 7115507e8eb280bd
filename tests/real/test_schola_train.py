"""schola-train, the command of images/schola: its arguments, what it tells RLlib, and the game.

Ray and Schola are stand-ins here; tests/real/test_image_lint.py has the real RLlib.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import standins
from tests.real.yard import wait_until
from trainyard import paths

pytestmark = pytest.mark.core

FILES = paths.shipped("images") / "schola" / "files"
RUNNING_GAME = ("--port", "8000")
SENT = {"node:10.0.0.2": 0.001}
# A process that plays the game until it is ended.
PLAYER = """
import sys, time, schola_train
game = schola_train.Game("localhost", sys.argv[1], True, port=schola_train.free_port())
game.start()
time.sleep(600)
"""


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Give variables with which `python` finds Ray, Schola and images/schola's files."""
    (tmp_path / "python").write_text(
        f'#!/bin/sh\nfile=$1\nshift\nexec {sys.executable} "{FILES}$file" "$@"\n'
    )
    (tmp_path / "python").chmod(0o755)
    found = [
        *(standins.HERE / name for name in ("schola", "schola_package", "rllib")),
        FILES / "opt" / "code",
    ]
    return {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "PYTHONPATH": ":".join(map(str, found)),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def train(
    environ: dict[str, str], *arguments: str, **more: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(FILES / "usr" / "local" / "bin" / "schola-train"), *arguments],
        env={**environ, **more},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
    )


def asked(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """Return the arguments with which each method of PPOConfig was called."""
    assert done.returncode == 0, done.stderr
    return dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)


def test_the_exit_code_is_the_trainings_and_no_key_is_waited_for(environ: dict[str, str]) -> None:
    assert train(environ, *RUNNING_GAME, "-t", "0").returncode == 3
    done = train(environ, *RUNNING_GAME, "-t", "100")
    assert done.returncode == 0
    assert done.stdout.splitlines()[-2:] == [
        "Training complete: 100 steps, Ray 2.60.0, ./ckpt",
        "ray.shutdown",
    ]


def test_settings_of_schola_reach_rllib_under_the_names_of_this_ray(
    environ: dict[str, str],
) -> None:
    found = asked(train(environ, *RUNNING_GAME, "--mini-batch-size", "128"))
    assert "'minibatch_size': 128, 'train_batch_size': 2048, 'num_epochs': 5" in found["training"]
    assert found["api_stack"] == str(
        {"enable_rl_module_and_learner": False, "enable_env_runner_and_connector_v2": False}
    )
    assert found["learners"] == str({"num_cpus_per_learner": 1, "num_gpus_per_learner": 0})
    assert found["env_runners"] == str({"num_env_runners": 0, "rollout_fragment_length": 200})


def test_without_that_it_is_refused_as_the_real_schola_is(environ: dict[str, str]) -> None:
    command = [
        sys.executable,
        "-c",
        "from schola.scripts.ray.launch import main_from_cli; main_from_cli()",
    ]
    done = subprocess.run([*command, *RUNNING_GAME], env=environ, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.endswith(
        "TypeError: training() got an unexpected keyword argument 'sgd_minibatch_size'\n"
    )


def test_the_learner_is_where_its_task_is_and_in_the_room_of_it(environ: dict[str, str]) -> None:
    found = asked(train(environ, *RUNNING_GAME))
    assert found["resources"] == str(
        {"num_cpus_for_main_process": 0, "custom_resources_for_main_process": SENT}
    )
    found = asked(train(environ, *RUNNING_GAME, "--num-gpus=1", "--num-cpus-for-main-process=2"))
    assert found["resources"] == str(
        {"num_cpus_for_main_process": 2, "custom_resources_for_main_process": SENT, "num_gpus": 1}
    )


def test_the_learner_has_as_many_threads_as_its_task_has_cpus(environ: dict[str, str]) -> None:
    assert "callbacks" not in asked(train(environ, *RUNNING_GAME))
    found = asked(train(environ, *RUNNING_GAME, OMP_NUM_THREADS="4"))
    assert found["callbacks"] == str({"class": "Threads"})


def test_environments_are_played_in_as_many_processes_as_asked(environ: dict[str, str]) -> None:
    game = ("--launch-unreal", "--unreal-path", "/bin/true")
    found = asked(train(environ, *game, "--num-env-runners=2"))
    assert found["env_runners"] == str({"num_env_runners": 2, "rollout_fragment_length": "auto"})


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ("--num-cpus=2",),
            (
                "--num-cpus starts a Ray of its own and fails on a cluster; use resources: in "
                "job.yaml"
            ),
        ),
        (
            ("--num-env-runners=2",),
            "several env runners have a game each, and cannot share a port; leave --port out",
        ),
    ],
)
def test_num_cpus_and_several_env_runners_on_one_port_are_refused(
    environ: dict[str, str], arguments: tuple[str, ...], says: str
) -> None:
    done = train(environ, *RUNNING_GAME, *arguments)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"schola-train: {says}\n")


def test_a_flag_that_does_nothing_says_so(environ: dict[str, str]) -> None:
    assert (
        "schola-train: --num-learners does nothing"
        in train(environ, *RUNNING_GAME, "--num-learners=2").stderr
    )


@pytest.fixture
def later(environ: dict[str, str]) -> dict[str, str]:
    """Give variables for a later Schola, which takes the algorithm as a word after the flags."""
    path = environ["PYTHONPATH"].replace("schola_package", "schola_later")
    return {**environ, "PYTHONPATH": path, "TRAINYARD_OUTPUT": "/out"}


@pytest.mark.parametrize("algorithm", ["PPO", "APPO", "IMPALA"])
def test_a_later_schola_trains_by_its_own_words_on_the_tasks_node(
    later: dict[str, str], algorithm: str
) -> None:
    done = train(
        later,
        "--using-cluster",
        "--gamma=0.98",
        "--minibatch-size=64",
        "-t",
        "100",
        "--headless",
        algorithm,
    )

    found = asked(done)
    assert "ray.init {}" in done.stdout
    assert found["train"] == f"{algorithm} {{'timesteps_total': 100}} /out/ckpt"
    assert "'gamma': 0.98" in found["training"] and "'minibatch_size': 64" in found["training"]
    assert found["resources"] == str(
        {"num_cpus_for_main_process": 0, "num_gpus": 0, "custom_resources_for_main_process": SENT}
    )


def test_a_later_schola_never_starts_a_ray_of_its_own(later: dict[str, str]) -> None:
    assert "ray.init {}\n" in train(later, "PPO").stdout


def test_a_later_schola_is_checked_without_game_and_cluster(later: dict[str, str]) -> None:
    said = "schola-train: would train {}, by the launcher of this Schola\n"
    assert train(later, "--check").stdout == said.format("PPO")
    assert train(later, "--check", "--activation=tanh", "APPO").stdout == said.format("APPO")
    wrong = train(later, "--check", "--mini-batch-sizes=3", "APPO")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "unrecognized arguments: --mini-batch-sizes=3" in wrong.stderr


def test_a_schola_with_a_command_of_its_own_gets_the_words(
    environ: dict[str, str], tmp_path: Path
) -> None:
    package = tmp_path / "two" / "schola" / "scripts"
    package.mkdir(parents=True)

    for directory in (package.parent, package):
        (directory / "__init__.py").touch()

    command = tmp_path / "schola"
    command.write_text('#!/bin/sh\necho schola "$@"\n')
    command.chmod(0o755)

    newest = {
        **environ,
        "PYTHONPATH": environ["PYTHONPATH"].replace(
            str(standins.HERE / "schola_package"), str(tmp_path / "two")
        ),
        "TRAINYARD_OUTPUT": "/out",
    }

    more = "--using-cluster --checkpoint-dir /out/ckpt"
    assert (
        train(newest, "ppo", "--gamma", "0.98").stdout
        == f"schola rllib train ppo --gamma 0.98 {more}\n"
    )
    assert train(newest, "ppo", "--checkpoint-dir=/a", "--using-cluster").stdout.split()[3:] == [
        *("ppo", "--checkpoint-dir=/a", "--using-cluster")
    ]
    assert train(newest, "--check").stdout == "schola rllib train --help\n"

    command.unlink()
    lacking = train(newest, "ppo")
    assert lacking.returncode == 1
    assert "this Schola has no launcher for RLlib" in lacking.stderr


def test_checkpoints_come_home_unless_they_go_elsewhere(environ: dict[str, str]) -> None:
    def where(*arguments: str) -> str:
        return asked(train(environ, *RUNNING_GAME, *arguments, TRAINYARD_OUTPUT="/out"))[
            "train"
        ].split()[-1]

    assert (where(), where("--checkpoint-dir=/mine")) == ("/out/ckpt", "/mine")


def test_a_check_needs_no_game_or_cluster_and_fails_as_training_would(
    environ: dict[str, str],
) -> None:
    done = train(environ, "--check")
    assert (done.returncode, done.stdout) == (0, "schola-train: would train, with [{'CPU': 1.0}]\n")
    done = train(environ, "--check", "--mini-batch-size=4096")
    assert done.returncode == 1
    assert done.stderr.endswith("ValueError: `minibatch_size` must be <= `train_batch_size`\n")


def test_a_game_ends_with_its_player_however_that_ends(
    environ: dict[str, str], tmp_path: Path
) -> None:
    script = tmp_path / "Game.sh"
    # As Unreal's script: the game is a child of the program that was started.
    script.write_text(f"#!/bin/sh\nsleep 600 &\necho $! > {tmp_path}/pid\nwait\n")
    script.chmod(0o755)
    pid = tmp_path / "pid"

    with subprocess.Popen([sys.executable, "-c", PLAYER, str(script)], env=environ) as player:
        wait_until(lambda: pid.exists() and bool(pid.read_text()), seconds=30, what="the game runs")
        game = int(pid.read_text())
        player.kill()

    wait_until(lambda: ended(game), seconds=30, what="the game of a player that was killed ends")

    pid.unlink()
    assert train(environ, "--launch-unreal", f"--unreal-path={script}").returncode == 0
    assert not pid.exists() or ended(int(pid.read_text()))


def ended(pid: int) -> bool:
    """Say whether a process is gone, or a zombie that waits for its parent."""
    status = Path(f"/proc/{pid}/stat")
    try:
        return status.read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True
