"""Sweeps on a real cluster: killed, stopped, resumed, pruned; with failing trials; a lost node."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import optuna
import psutil
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from trainyard_runner.wire.space import key_of

from tests.real.jobs import end_of, events, newest, runs, write_job
from tests.real.yard import HEAD_AND_WORKER, Yard, wait_until

CLUSTER = HEAD_AND_WORKER.replace("cpus: 1", "cpus: 2")

# The reward says how near the learning rate is to 0.001, and rises with every step. Trials from the
# seventh on wait for a file.
TRAINING = """
    import json, math, os, pathlib, sys, time
    while int(os.environ["TRAINYARD_TASK"].split("-")[1]) >= 6 and not pathlib.Path(sys.argv[-1]).exists():
        time.sleep(0.1)
    for step in range(3):
        print(json.dumps({"step": step, "reward": (step - 5) * abs(math.log10(float(sys.argv[1])) + 3)}), flush=True)
    """
JOB = """
command: [python3, train.py, "{lr}", "--momentum={momentum}", "{repeat}", GO]
tune:
  space:
    optimizer: {choice: [adam, sgd]}
    lr: {loguniform: [1e-5, 1e-1]}
    momentum: {uniform: [0, 1], step: 0.1, when: {optimizer: [sgd]}}
  metric: reward
  samples: 10
  repeats: 2
env: {OPTIMIZER: "{optimizer}"}
"""
# The loss is the argument; from 4 on, an attempt takes four seconds unless it is pruned.
PRUNED = """
    import json, sys, time
    for step in range(50):
        print(json.dumps({"step": step, "loss": float(sys.argv[1])}), flush=True)
        time.sleep(0.08 if int(sys.argv[1]) > 3 else 0)
    print("to its end", flush=True)
    """
WAYS = """
    import json, sys, time
    way = sys.argv[1]
    if way == "crash":
        raise SystemExit("no such environment")
    for step in range(3):
        if way != "silent":
            print(json.dumps({"step": step, "reward": float("nan") if way[:3] == "nan" and step else step}), flush=True)
    if way in ("hang", "silent"):
        time.sleep(600)
    """
# Waits after its first checkpoint; with a checkpoint, ends at once.
LONG = """
    import json, os, pathlib, time
    began = pathlib.Path(os.environ["TRAINYARD_CHECKPOINT"], "began")
    print(json.dumps({"step": 0, "reward": 1}), flush=True)
    if not began.exists():
        began.touch()
        time.sleep(600)
    print("resumed", flush=True)
    """


@pytest.mark.core
def test_a_sweep_continues_after_its_killed_runner_and_counts_once(yard: Yard) -> None:
    go = yard.home / "go"
    write_job(yard, "quick", JOB.replace("GO", f"'{go}'"), train=TRAINING)
    run, following = dispatched(yard, "quick")
    try:
        wait_until(lambda: len(ended(run)) >= 3, seconds=180, what="some trials have ended")
        runner(run).kill()
        code, output = end_of(following)
    finally:
        following.kill()

    assert code == 6, output
    known = len(complete(run))
    assert 3 <= known < 10

    refused = yard.run("tune.resume", run.name, "--set", "tune.repeats=3", expect=2)
    assert "a sweep cannot continue with another repeats" in refused.stderr
    go.touch()
    yard.run("tune.resume", run.name)
    document = yard.json("tune.status")
    assert (document["state"], document["counts"]["complete"]) == ("succeeded", 10)
    trials = [trial for trial in document["trials"] if trial["state"] == "complete"]
    assert len({key_of(trial["params"]) for trial in trials}) == 10
    assert all(len(trial["values"]) == 2 for trial in trials)
    assert sum(not trial["tasks"] for trial in trials) == known
    best = max(trials, key=lambda trial: trial["value"])
    assert document["best"]["value"] == best["value"]
    # The local file is Optuna's own storage.
    study = optuna.load_study(study_name=None, storage=storage(newest(yard)))
    assert (study.best_trial.number, study.best_value) == (document["best"]["trial"], best["value"])
    assert len([trial for trial in study.trials if trial.state.name == "COMPLETE"]) == 10


def test_an_unfollowed_sweep_is_stopped_and_resumed_from_its_checkpoints(yard: Yard) -> None:
    job = "tune: {space: {a: {choice: [1, 2, 3]}}, metric: reward, samples: 2, repeats: 2}\n"
    write_job(yard, "long", f'command: [python3, train.py, "{{a}}"]\n{job}', train=LONG)
    yard.run("tune.dispatch", "long", "--no-wait")
    run = newest(yard)

    def has_checkpoints() -> bool:
        yard.run("tune.status")
        return [event["event"] for event in recorded(run)].count("checkpoint") == 4

    wait_until(has_checkpoints, seconds=120, what="every task has a checkpoint")
    assert "is still active" in yard.run("tune.resume", run.name, expect=2).stderr
    yard.run("tune.stop", run.name)
    assert yard.json("tune.status")["counts"]["stopped"] == 2
    yard.run("tune.resume")
    document = yard.json("tune.status")
    assert (document["counts"]["complete"], document["end"]["reason"]) == (
        2,
        "all samples were tried",
    )
    logs = [path.read_text() for path in newest(yard).glob("logs/*.log")]
    assert len(logs) == 4 and all("resumed" in log for log in logs)


def test_pruning_ends_all_repeats_of_a_trial_that_is_worse(yard: Yard) -> None:
    write_job(
        yard,
        "pruned",
        """
        command: [python3, train.py, "{x}", "{repeat}"]
        tune:
          space: {x: {grid: [1, 2, 3, 8, 9]}}
          search: grid
          metric: loss
          mode: min
          repeats: 2
          concurrency: 2
          prune: {after: 3, warmup: 2}
        """,
        train=PRUNED,
    )

    document = yard.json("tune.dispatch", "pruned")
    run = newest(yard)
    assert document == yard.json("tune.status")
    assert {task["state"] for task in document["tasks"]} == {"succeeded", "stopped"}
    assert (
        document["best"]["value"],
        document["counts"]["complete"],
        document["counts"]["pruned"],
    ) == (1.0, 3, 2)

    for trial in document["trials"]:
        logs = [
            "to its end" in (run / "logs" / f"{task}.1.log").read_text() for task in trial["tasks"]
        ]
        assert logs == [trial["state"] == "complete"] * 2


def test_trials_that_crash_hang_or_lose_their_metric_are_named(yard: Yard) -> None:
    write_job(
        yard,
        "ways",
        """
        command: [python3, train.py, "{way}"]
        tune:
          space: {way: {grid: [good, crash, nan, nan-again, nan-once-more, hang, silent]}}
          search: grid
          metric: reward
          first: 5s
          silence: 5s
        """,
        train=WAYS,
    )

    yard.run("tune.dispatch", "ways")
    document = yard.json("tune.status")
    trials = {trial["params"]["way"]: trial for trial in document["trials"]}
    assert {way for way, trial in trials.items() if trial["state"] == "failed"} == {*trials} - {
        "good"
    }
    assert (document["best"]["params"], document["best"]["value"]) == ({"way": "good"}, 2.0)
    assert "exit code 1" in trials["crash"]["reason"]
    assert "nan" in trials["nan"]["reason"].lower()
    # In a sweep NaN is blamed on the configuration, and the node still gets trials.
    lost = [trial["tasks"][0] for way, trial in trials.items() if way.startswith("nan")]
    avoided = [
        event["text"] for event in events(newest(yard)) if "is avoided" in event.get("text", "")
    ]
    assert len(lost) == 3
    assert not [task for task in lost if task in " ".join(avoided)]
    page = newest(yard).joinpath("report.html").read_text()
    assert all(trial["tasks"][0] in page for trial in trials.values())


def test_a_job_with_tune_and_one_without_name_the_command_that_each_needs(yard: Yard) -> None:
    write_job(yard, "quick", JOB, train=TRAINING)
    write_job(yard, "plain", "command: [python3, train.py]\n", train="")
    assert "tune.dispatch quick" in yard.run("train.dispatch", "quick", expect=2).stderr
    assert "train.dispatch plain" in yard.run("tune.dispatch", "plain", expect=2).stderr


def test_a_node_that_dies_costs_no_trial_and_none_counts_twice(fresh: Yard) -> None:
    fresh.write_cluster(CLUSTER)
    fresh.run("cluster.up")
    write_job(
        fresh,
        "losing",
        """
        command: [python3, train.py, "{x}", "{repeat}"]
        tune: {space: {x: {randint: [1, 100]}}, search: random, metric: reward, samples: 6, repeats: 2}
        """,
        train='import json, time\ntime.sleep(2)\nprint(json.dumps({"reward": 1}), flush=True)\n',
    )

    run, following = dispatched(fresh, "losing")
    try:

        def runs_on_worker() -> bool:
            return any(
                event["event"] == "attempt-started" and event["node"] == "cpu-0"
                for event in recorded(run)
            )

        wait_until(runs_on_worker, seconds=120, what="a trial runs on the worker")
        keeper = psutil.Process(fresh.keeper("cpu-0").pid)
        for process in [keeper, *keeper.children(recursive=True)]:
            if process.is_running():
                process.kill()

        code, output = end_of(following)
    finally:
        following.kill()

    assert code == 0, output
    outcomes = [event for event in events(run) if event["event"] == "trial-ended"]
    assert [event["outcome"] for event in outcomes] == ["complete"] * 6
    assert len({event["trial"] for event in outcomes}) == 6
    assert any(
        event.get("outcome") == "lost" for event in events(run) if event["event"] == "attempt-ended"
    )


def dispatched(yard: Yard, job: str) -> tuple[Path, subprocess.Popen[str]]:
    before = runs(yard)
    following = yard.start("tune.dispatch", job)
    wait_until(
        lambda: bool(runs(yard) - before) or following.poll() is not None,
        seconds=120,
        what="a new run",
    )
    return next(iter(runs(yard) - before)), following


def recorded(run: Path) -> list[dict[str, Any]]:
    """Return the events that have arrived; none before the first."""
    return events(run) if (run / "events.jsonl").exists() else []


def ended(run: Path) -> list[dict[str, Any]]:
    return [event for event in recorded(run) if event["event"] == "trial-ended"]


def complete(run: Path) -> list[optuna.trial.FrozenTrial]:
    trials = optuna.load_study(study_name=None, storage=storage(run)).trials
    return [trial for trial in trials if trial.state.name == "COMPLETE"]


def storage(run: Path) -> JournalStorage:
    return JournalStorage(JournalFileBackend(str(run / "study.journal")))


def runner(run: Path) -> psutil.Process:
    """Return the process that runs a sweep."""
    for process in psutil.process_iter(["cmdline", "status"]):
        if (
            run.name in (process.info["cmdline"] or ())
            and process.info["status"] != psutil.STATUS_ZOMBIE
        ):
            return process
    raise AssertionError(f"no runner of {run.name}")
