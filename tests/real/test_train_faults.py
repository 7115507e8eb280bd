"""Faults while a run is followed: of the operator, the connection, the runner, the head."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import suppress

import psutil
import pytest

from tests.real.jobs import (
    COUNTING,
    GONE_WITHIN,
    assert_whole,
    counted,
    end_of,
    events,
    log_of,
    new_mark,
    newest,
    printed_until,
    rest_of,
    running,
    runs,
    started,
    write_job,
)
from tests.real.proxy import Proxy
from tests.real.yard import HEAD_AND_WORKER, Yard, wait_until

LINES = 400


def counting_job(yard: Yard, *, pause: float, mark: str) -> str:
    """Write a job that counts, ten lines and a pause at a time; its child carries the mark."""
    return write_job(
        yard,
        "counting",
        f"""
        command: [python3, count.py, "{LINES}", "{pause}"]
        """,
        count=f"import subprocess\nsubprocess.Popen(['sleep', '{mark}'], "
        f"start_new_session=True)\n{COUNTING}",
    )


@pytest.mark.core
def test_a_run_survives_its_killed_operator_and_logs_have_no_gap_or_repeat(yard: Yard) -> None:
    job, before = counting_job(yard, pause=0.2, mark=new_mark()), runs(yard)
    operator = yard.start("train.dispatch", job, "--skip-smoke")
    run = started(yard, before, operator)
    operator.send_signal(signal.SIGKILL)
    _, first = end_of(operator)
    done = yard.run("train.logs", run.name)
    assert log_of(run) == counted(LINES)
    assert [event["seq"] for event in events(run)] == sorted(
        {event["seq"] for event in events(run)}
    )
    assert "continuing after the last line you saw" in done.stdout
    shown = [
        line for line in (first + done.stdout).splitlines() if line.startswith("[counting] line")
    ]
    # The killed process may have recorded some lines that it could not print any more.
    assert len(shown) == len(set(shown)) >= LINES - 20
    assert yard.json("train.status", run.name)["state"] == "succeeded"
    assert (run / "report.html").exists()


def test_an_interrupted_dispatch_stops_its_run_and_leaves_no_process(yard: Yard) -> None:
    mark = new_mark()
    job, before = counting_job(yard, pause=5, mark=mark), runs(yard)
    operator = yard.start("train.dispatch", job, "--skip-smoke")
    run = started(yard, before, operator)
    assert running(mark)
    # CI systems send SIGTERM; Ctrl-C has the same effect.
    operator.send_signal(signal.SIGTERM)
    code, output = end_of(operator)
    assert (code, f"run {run.name} was stopped" in output) == (130, True), output
    assert yard.json("train.status", run.name)["state"] == "stopped"
    wait_until(lambda: not running(mark), seconds=GONE_WITHIN, what="no task process is left")


def test_a_run_without_waiting_is_seen_left_alone_and_stopped(yard: Yard) -> None:
    mark = new_mark()
    job = counting_job(yard, pause=5, mark=mark)
    done = yard.run("train.dispatch", job, "--no-wait", "--skip-smoke")
    run = newest(yard)
    assert done.stderr.splitlines()[-1] == f"next: trainyard train.logs {run.name}"
    wait_until(lambda: yard.json("train.status")["state"] == "running", seconds=60, what="running")

    looking = yard.start("train.logs", run.name)
    assert looking.stdout is not None
    # Ctrl-C leaves the run alone from the first line on; before that, Python is still starting.
    assert looking.stdout.readline()
    wait_until(lambda: "line 9\n" in log_of(run), seconds=60, what="lines")
    looking.send_signal(signal.SIGINT)
    code, output = end_of(looking)
    assert (code, f"run {run.name} is still active" in output) == (0, True), output

    so_far = yard.run("train.logs", run.name, "--no-follow")
    assert "[counting] line 9" in so_far.stdout.splitlines()
    yard.environ["TRAINYARD_RESULTS"] = "of-a-colleague"
    unknown = yard.run("train.stop", run.name, expect=2)
    assert "trainyard train.stop RUN -f FILE" in unknown.stderr
    said = yard.run("train.stop", run.name, "-f", yard.cluster, "--dry").stdout
    assert f"run {run.name}, dispatched by " in said
    theirs = yard.run("train.stop", run.name, "-f", yard.cluster)
    assert theirs.stdout.startswith(f"run {run.name} of ")
    again = yard.run("train.stop", run.name, "-f", yard.cluster)
    assert " had already ended (" in again.stdout
    del yard.environ["TRAINYARD_RESULTS"]
    stopped = yard.run("train.stop", "-f", yard.cluster)
    assert stopped.stdout == f"run {run.name} had already ended (stopped)\n"
    assert "line" not in stopped.stderr, "who stops a run does not ask for what it printed"
    wait_until(lambda: not running(mark), seconds=GONE_WITHIN, what="no task process is left")
    assert yard.json("train.status", run.name)["exit"] == 1


@pytest.fixture
def proxied(yard: Yard) -> Iterator[Proxy]:
    """Give a connection to the cluster that can be cut, as clusters/proxied.yaml."""
    proxy = Proxy(yard.address())
    proxy.start()
    token = yard.state / "token"
    yard.write_cluster(
        f"name: {{name}}\nbackend: existing\nexisting: {{{{address: '{proxy.address}', "
        f"token_file: '{token}'}}}}\n",
        name="proxied",
    )
    yield proxy
    proxy.cut()
    (yard.home / "clusters" / "proxied.yaml").unlink()


@pytest.mark.core
def test_a_lost_connection_is_made_again_without_gap_or_repeat(yard: Yard, proxied: Proxy) -> None:
    job, before = counting_job(yard, pause=0.3, mark=new_mark()), runs(yard)
    operator = yard.start("train.dispatch", job, "-f", "proxied", "--skip-smoke")
    run = started(yard, before, operator)
    proxied.cut()
    output = printed_until("connection to the cluster lost, trying again", operator)
    proxied.start()
    code, rest = rest_of(operator)
    assert code == 0, output + rest
    assert "connected again" in rest
    assert_whole(output + rest, run, LINES)


@pytest.mark.core
def test_a_killed_runner_is_noticed(yard: Yard) -> None:
    mark = new_mark()
    job, before = counting_job(yard, pause=5, mark=mark), runs(yard)
    operator = yard.start("train.dispatch", job, "--skip-smoke")
    run = started(yard, before, operator)
    for pid in running(run.name):
        # Only the runner is killed: Ray's supervisor and shell name the run too, the operator's
        # command does not.
        if psutil.Process(pid).name().startswith("python"):
            psutil.Process(pid).kill()
    code, output = end_of(operator)
    assert (code, "the runner died" in output) == (6, True), output
    assert yard.json("train.status", run.name)["exit"] == 6
    wait_until(lambda: not running(mark), seconds=GONE_WITHIN, what="no task process is left")


@pytest.mark.waiting
def test_a_dead_head_is_a_clear_error_and_its_tasks_end_by_themselves(fresh: Yard) -> None:
    fresh.write_cluster(HEAD_AND_WORKER)
    fresh.run("cluster.up")
    mark = new_mark()
    job, before = counting_job(fresh, pause=5, mark=mark), runs(fresh)
    operator = fresh.start("train.dispatch", job, "--json", "--skip-smoke")
    run = started(fresh, before, operator)
    psutil.Process(fresh.keeper("head").pid).kill()

    for process in fresh.processes():
        # These processes end each other during the loop.
        with suppress(psutil.NoSuchProcess):
            if "cpu-0" not in " ".join(process.cmdline()):
                process.kill()

    code, output = end_of(operator)
    assert (code, "the cluster has not answered for" in output) == (6, True), output
    assert f"trainyard train.logs {run.name}" in output
    document = json.loads(output[output.index("{\n") : output.rindex("\n}") + 2])
    assert (document["run"], document["state"]) == (run.name, "running")
    listed = fresh.json("train.list")["runs"]
    assert listed[0]["unsure"].startswith("cluster unreachable")
    # A raylet that has not reached the GCS for 60 s ends. Its workers, their guards and the tasks
    # end with it.
    wait_until(lambda: not running(mark), seconds=180, what="what the task started ended")
