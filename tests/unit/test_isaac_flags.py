"""Each flag of Isaac Lab's Ray scripts is taken, or named with its replacement.

Facts, read in each generation's own parsers: source/standalone/workflows/ray (Isaac Lab 1.4, 2.0),
scripts/reinforcement_learning/ray (2.1 to 2.3), isaaclab_contrib.rl.ray (3.0).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import isaac_lab
from tests.unit.fake_programs import FakePrograms
from trainyard.errors import RequestError
from trainyard.importing import Imported, Options, convert, convert_cluster
from trainyard.importing.command_line import OTHER_SCRIPTS

TASKS = "tasks: [{name: a, py_args: a.py, num_gpus: 1}]\n"
# A value of each flag; REST takes all words behind it.
TUNER = {
    "ray_address": "auto",
    "cfg_file": "hyperparameter_tuning/vision_cartpole_cfg.py",
    "cfg_class": "CartpoleTheiaJobCfg",
    "run_mode": "remote",
    "workflow": "/workspace/isaaclab/scripts/reinforcement_learning/rl_games/train.py",
    "mlflow_uri": "http://10.0.0.1:5000",
    "num_workers_per_node": "2",
    "metric": "rewards/step",
    "mode": "min",
    "num_samples": "40",
    "repeat_run_count": "2",
}
LATER_TUNER = {
    "process_response_timeout": "120.0",
    "max_lines_to_search_experiment_logs": "1000",
    "max_log_extraction_errors": "2",
    "progress_reporter": "CustomCartpoleProgressReporter",
    "stopper": "CartpoleEarlyStopper",
}
WRAP = {"num_workers": "2", "ray_address": "auto", "sub_jobs": "a.py"}
GRANULAR = {
    "gpu_per_worker": "1 2",
    "cpu_per_worker": "4",
    "ram_gb_per_worker": "16",
    "sub_jobs": "a.py + b.py",
}
RUNNER = {"task_cfg": "tasks.yaml", "ray_address": "auto"}
JOBS = {
    "tuner of 1.4": ("tuner", TUNER),
    "tuner of 2.3 and 3.0": ("tuner", {**TUNER, **LATER_TUNER}),
    "wrap_resources of 1.4": ("wrap_resources", WRAP),
    "wrap_resources by size": ("wrap_resources", GRANULAR),
    "wrap_resources that looks at GPUs": ("wrap_resources", {"test": ""}),
    "wrap_resources of 2.3 and 3.0": (
        "wrap_resources",
        {"py_modules": "my_package/my_package other", **WRAP},
    ),
    "task_runner": ("task_runner", RUNNER),
    "task_runner that looks at GPUs": ("task_runner", {**RUNNER, "test": ""}),
    "submit_job": (
        "submit_job",
        {"config_file": "~/.cluster_config", "aggregate_jobs": "wrap_resources.py --test"},
    ),
}
LAUNCH = {
    "cluster_host": "google_cloud",
    "name": "isaacray",
    "namespace": "robots",
    "service_acount_name": "trainer",
    "image": "lab/isaac-ray:1",
    "worker_accelerator": "nvidia-l4 nvidia-tesla-t4",
    "gpu_per_worker": "1 2 4",
    "cpu_per_worker": "8",
    "ram_gb_per_worker": "16 32",
    "num_workers": "1 2",
    "num_clusters": "2",
    "num_head_cpu": "4",
    "head_ram_gb": "12",
}
OTHERS = {
    "launch": LAUNCH,
    "grok_cluster_with_kubectl": {
        "prefix": "isaacray",
        "output": "x",
        "ray_head_name": "head",
        "namespace": "robots",
    },
    "mlflow_to_local_tensorboard": {
        "uri": "http://a",
        "experiment-name": "e",
        "download-dir": "d",
        "debug": "",
    },
}


def line(script: str, flags: dict[str, str]) -> list[str]:
    return [
        f"{script}.py",
        *(word for flag, value in flags.items() for word in (f"--{flag}", *value.split())),
    ]


@pytest.mark.parametrize("case", JOBS)
def test_every_flag_of_a_script_that_runs_jobs_is_taken_or_named(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: FakePrograms
) -> None:
    script, flags = JOBS[case]
    isaac_lab.write(tmp_path, "old")
    (tmp_path / "tasks.yaml").write_text(TASKS)
    monkeypatch.chdir(tmp_path)
    # Asked of the class in a process of its own (tests/real/test_isaac.py).
    started.answer((0, f"isaac_task.py: {json.dumps(isaac_lab.DESCRIBED)}"))
    found = convert(None, line(script, flags), Options())
    shown = f"{found.text} {found.notes}"

    elsewhere = {
        "cfg_file": "vision_cartpole_cfg.py",
        "num_workers_per_node": "share: 1/2",
        "num_workers": "share: 1/2",
        "num_samples": "samples: 20",
        "repeat_run_count": "repeats: 2",
        "process_response_timeout": "silence: 2m",
        "metric": "rewards/step",
        "gpu_per_worker": "gpus: 2",
        "cpu_per_worker": "cpus: 4",
        "ram_gb_per_worker": "memory: 16GiB",
        "test": "nvidia-smi",
        "task_cfg": "name: a",
        "sub_jobs": "a.py",
        "aggregate_jobs": "nvidia-smi",
        "progress_reporter": "CustomCartpoleProgressReporter",
    }

    assert {flag for flag in flags if elsewhere.get(flag, flag) not in shown} == set(), shown


def test_modules_of_wrap_resources_are_those_of_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = convert(
        None,
        line("wrap_resources", {"py_modules": "a/b https://x/y.zip", "sub_jobs": "a.py"}),
        Options(),
    )
    assert isinstance(found, Imported)
    assert found.job["runtime_env"] == {
        "py_modules": [str(tmp_path / "a" / "b"), "https://x/y.zip"]
    }


def test_a_task_runner_that_looks_at_gpus_keeps_the_sizes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tasks.yaml").write_text(TASKS)
    found = convert(None, line("task_runner", {**RUNNER, "test": ""}), Options())
    assert isinstance(found, Imported)
    assert found.job["tasks"] == [
        {"name": "a", "command": ["nvidia-smi"], "resources": {"gpus": 1.0}}
    ]


@pytest.mark.parametrize("script", OTHERS)
def test_a_script_that_runs_no_job_is_named_with_what_stands_for_it(script: str) -> None:
    with pytest.raises(RequestError) as caught:
        convert(None, ["python3", *line(script, OTHERS[script])], Options())
    assert (caught.value.what, caught.value.hint) == (
        f"{script}.py runs no job",
        OTHER_SCRIPTS[script],
    )


def test_every_flag_of_launch_is_in_the_cluster_files(tmp_path: Path) -> None:
    made = convert_cluster(None, ["python3", *line("launch", LAUNCH)])
    assert sorted(made.texts) == ["isaacray-0", "isaacray-1"]
    text = made.texts["isaacray-1"]

    for written in (
        "namespace: robots",
        "service_account: trainer",
        "image: lab/isaac-ray:1",
        "memory: 12",
        "cpus: 0",
    ):
        assert written in text, text

    groups = text[text.index("workers:") :]
    # Where a flag has fewer values than another one, its largest fills the rest, as in launch.py.
    assert [
        groups.count(each) for each in ("gpus: 1\n", "gpus: 2\n", "gpus: 4\n", "cpus: 8\n")
    ] == [1, 1, 1, 3]
    assert [groups.count(each) for each in ("count: 1\n", "count: 2\n")] == [1, 2]
    assert groups.count("gke-accelerator: nvidia-tesla-t4") == 2
    made.write(tmp_path)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["launch.py"], "launch.py: the following arguments are required: --image"),
        (
            ["launch.py", "--image", "x", "--name", "my-head"],
            "launch.py rejects a name that contains `head`",
        ),
        (
            ["launch.py", "--image", "x", "--per_worker_num_gpu", "1"],
            "launch.py: unrecognized arguments: --per_worker",
        ),
        (
            ["launch.py", "--image", "x", "--cluster_host", "aws"],
            "launch.py: argument --cluster_host: invalid choice",
        ),
        (["wrap_resources.py", "--test"], "this is no command line of Isaac Lab's launch.py"),
    ],
)
def test_a_line_that_launch_refuses_is_refused(words: list[str], message: str) -> None:
    with pytest.raises(RequestError) as caught:
        convert_cluster(None, words)
    assert caught.value.what.startswith(message)


def test_a_script_with_a_line_of_launch_is_read(tmp_path: Path) -> None:
    script = tmp_path / "up.sh"
    script.write_text(
        "#!/bin/sh\nset -e\npython3 launch.py --image lab/isaac-ray:1 \\\n  --num_workers 3\n"
    )
    made = convert_cluster(script)
    assert list(made.texts) == ["isaacray"]
    assert "count: 3" in made.text
