"""The watched metric in real runs: which attempts it ends, their last lines, and their retries."""

from __future__ import annotations

import collections
import contextlib
import os
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from trainyard_runner.node.metric_reader import MetricReader

from tests.bed import mlflow
from tests.real.jobs import events, newest, write_job
from tests.real.yard import Yard, wait_until

WATCH = {"metric": "reward", "source": "mlflow", "path": None, "uri": None, "step": "step"}
# Faults of a training; 600 s is longer than any test waits.
TROUBLED = """
    import json, sys, threading, time

    def write(**values):
        print(json.dumps(values), flush=True)

    def load_batches():
        time.sleep(600)

    def wait_for_batches():
        threading.Thread(target=load_batches).start()
        time.sleep(600)

    match sys.argv[1]:
        case "silent":
            write(reward=1.5, step=7)
            wait_for_batches()
        case "never":
            write(rewards=1, loss=2.5)
            wait_for_batches()
        case "nan":
            write(reward=1.5)
            write(reward=float("nan"))
            wait_for_batches()
        case "over":
            # It ends by itself, and what it leaves takes the guard a second, in which the metric is read.
            import subprocess
            deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
            subprocess.Popen([sys.executable, "-c", deaf])
            for step, value in ((3, 3), (4, float("nan")), (5, 5)):
                write(reward=value, step=step)
            time.sleep(0.1)
        case "constant":
            while True:
                write(reward=1.5)
                time.sleep(0.2)
        case "healthy":
            write(reward=1.5)
            write(reward=2.5)
    """
# The first attempt to start marks its node as broken: on that node nothing is written.
ON_A_BROKEN_NODE = """
    import os, pathlib, sys, time
    node, broken = os.environ["RAY_RAYLET_PID"], pathlib.Path(sys.argv[1])
    try:
        with broken.open("x") as file:
            file.write(node)
    except FileExistsError:
        while not broken.read_text():
            time.sleep(0.01)
    if broken.read_text() == node:
        time.sleep(600)
    print('{"reward": 1}', flush=True)
    """
LOGGING = """
    import mlflow
    with mlflow.start_run():
        for step, value in ((0, 0.5), (10, 1.5), (20, 2.5)):
            mlflow.log_metric("reward", value, step=step)
    """


@pytest.fixture(scope="module")
def tracking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Give a tracking server, which starts while the first tests run."""
    with mlflow.server(tmp_path_factory.mktemp("mlflow")) as started:
        yield started


@pytest.fixture(scope="module")
def troubled(yard: Yard, tracking: tuple[str, Path]) -> Path:
    """Return a run with a task for each fault, and a healthy task."""
    job = """
        command: [python3, train.py, "{trouble}"]
        matrix: {trouble: [silent, never, nan, over, constant, healthy]}
        resources: {cpus: 0.2}
        watch: {metric: reward, first: 4s, silence: 4s, constant: 4s}
        """
    write_job(yard, "troubled", job, train=TROUBLED)
    yard.run("train.dispatch", "troubled", "--skip-smoke", expect=1)
    return newest(yard)


@pytest.mark.parametrize(
    ("task", "rule", "reason"),
    [
        ("silent", "silence", "no value of reward for 4 s; before, it was 1.5 at step 7"),
        ("never", "first", "no first value of reward within 4 s; it wrote: rewards, loss"),
        ("nan", "nan", "reward became nan at step 1; before, it was 1.5 at step 0"),
        (
            "over",
            "nan",
            (
                "reward became nan at step 4; before, it was 3 at step 3; it ended by itself, with "
                "exit code 0"
            ),
        ),
        ("constant", "constant", "reward has been 1.5 for 4 s"),
    ],
)
def test_an_attempt_whose_metric_does_not_move_is_ended_with_the_reason(
    task: str, rule: str, reason: str, troubled: Path
) -> None:
    (ended,) = of_kind(troubled, "attempt-ended", f"trouble={task}")
    assert (ended["outcome"], ended["watch"], ended["reason"]) == ("failed", rule, reason)


def test_a_task_that_had_ended_by_itself_shows_no_threads(troubled: Path) -> None:
    (ended,) = of_kind(troubled, "attempt-ended", "trouble=over")
    assert ended["exit_code"] == 0
    assert "threads" not in (troubled / "logs" / "trouble=over.1.log").read_text()


@pytest.mark.parametrize("task", ["silent", "never", "nan"])
def test_its_last_lines_say_where_each_of_its_threads_was(task: str, troubled: Path) -> None:
    (ended,) = of_kind(troubled, "attempt-ended", f"trouble={task}")
    last = "\n".join(ended["tail"])
    assert "in load_batches" in last
    assert "in wait_for_batches" in last
    assert not list(troubled.rglob("core*"))


def test_a_healthy_task_next_to_them_is_left_alone_and_logs_its_values(troubled: Path) -> None:
    (ended,) = of_kind(troubled, "attempt-ended", "trouble=healthy")
    assert (ended["outcome"], ended["watch"]) == ("succeeded", None)
    assert values(troubled, "trouble=healthy") == [[0, 1.5], [1, 2.5]]
    assert values(troubled, "trouble=nan") == [[0, 1.5]]


def test_it_is_retried_on_another_node_and_a_node_that_failed_two_is_out(yard: Yard) -> None:
    job = f"""
        command: [python3, train.py, "{yard.home / "broken-node"}", "{{n}}"]
        matrix: {{n: {list(range(12))}}}
        resources: {{cpus: 1}}
        node: {{group: gpu}}
        retries: 1
        watch: {{metric: reward, first: 4s}}
        """

    write_job(yard, "elsewhere", job, train=ON_A_BROKEN_NODE)
    yard.run("train.dispatch", "elsewhere", "--skip-smoke")
    run = newest(yard)
    ended = [event for event in of_kind(run, "attempt-ended") if event["outcome"] != "lost"]
    broken = {event["node"] for event in ended if event["outcome"] == "failed"}
    assert len(broken) == 1
    assert {event["node"] for event in ended if event["attempt"] == 2}.isdisjoint(broken)
    (note,) = of_kind(run, "note")
    avoided = (
        f"{broken.pop()} is avoided for the rest of this run: the watchdog ended 2 tasks there (n="
    )
    assert note["text"].startswith(avoided)
    # An attempt that was already on its way there is cancelled; one that had begun runs to its end.
    late = [event for event in of_kind(run, "attempt-started") if event["seq"] > note["seq"]]
    late_there = {
        (event["task"], event["attempt"]) for event in late if event["node"] in note["text"]
    }
    outcomes = {
        event["outcome"]
        for event in of_kind(run, "attempt-ended")
        if (event["task"], event["attempt"]) in late_there
    }
    assert outcomes <= {"lost"}


def test_forty_slow_but_healthy_tasks_are_left_alone(yard: Yard) -> None:
    # Between 40 and 70 % of the time that a task may take before its first value, and between
    # values.
    script = """
        case $((N % 20)) in
        0) sleep 3.5; echo "{\\"reward\\": $N}";;
        1) echo "{\\"reward\\": $N}"; sleep 3.5; echo "{\\"reward\\": 0.5}";;
        *[02468]) sleep 2; echo "{\\"reward\\": $N}"; sleep 0.5;;
        *) echo "{\\"reward\\": $N}"; sleep 2; echo "{\\"reward\\": 0.5}";;
        esac
        """

    job = f"""
        command: [sh, train.sh]
        matrix: {{n: {list(range(40))}}}
        env: {{N: "{{n}}"}}
        resources: {{cpus: 0.2}}
        watch: {{metric: reward, first: 5s, silence: 5s, constant: 5s}}
        """

    write_job(yard, "healthy", job)
    (yard.home / "jobs" / "healthy" / "train.sh").write_text(script)
    yard.run("train.dispatch", "healthy", "--skip-smoke")
    ended = of_kind(newest(yard), "attempt-ended")
    assert collections.Counter((event["outcome"], event["attempt"]) for event in ended) == {
        ("succeeded", 1): 40
    }


def test_mlflows_runs_are_read_from_a_server_a_database_and_a_directory(
    yard: Yard, tracking: tuple[str, Path]
) -> None:
    address, database = tracking
    wait_until(lambda: answers(f"{address}/health"), seconds=180, what="MLflow's server answers")
    job = f"""
        command: [python3, train.py, "{{uri}}"]
        matrix: {{uri: ["{address}", "file:./mlruns"]}}
        env: {{PATH: "{mlflow.python().parent}", MLFLOW_TRACKING_URI: "{{uri}}", MLFLOW_ALLOW_FILE_STORE: "true"}}
        watch: {{metric: reward, source: mlflow, first: 3m}}
        """

    write_job(yard, "logging", job, train=LOGGING)
    yard.run("train.dispatch", "logging", "--skip-smoke")
    run = newest(yard)
    expected = [[0, 0.5], [10, 1.5], [20, 2.5]]
    assert values(run, f"uri={address}") == values(run, "uri=file:./mlruns") == expected
    task = {
        **os.environ,
        "PATH": str(mlflow.python().parent),
        "TRAINYARD_ATTEMPT_ID": f"{run.name}:uri={address}:1",
    }

    read = MetricReader({**WATCH, "uri": f"sqlite:///{database}"}, roots=[run], environment=task)
    with contextlib.closing(read):
        assert [point[:2] for point in read.new()] == expected


def answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def values(run: Path, task: str) -> list[list[float]]:
    return [value[:2] for event in of_kind(run, "metric", task) for value in event["values"]]


def of_kind(run: Path, kind: str, task: str | None = None) -> list[dict[str, Any]]:
    return [
        event
        for event in events(run)
        if event["event"] == kind and task in (None, event.get("task"))
    ]
