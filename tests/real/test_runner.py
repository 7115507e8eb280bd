"""The runner gives tasks GPUs and an environment, takes outputs, runs many tasks and gangs."""

from __future__ import annotations

import collections
import json
from pathlib import Path
from typing import Any

import pytest

from tests.real.jobs import events, newest, write_job
from tests.real.yard import Yard

SAY_ENVIRONMENT = """
    import json, os
    print(json.dumps(dict(os.environ)))
    """

OUTPUTS = """
    import os, pathlib
    out = pathlib.Path(os.environ["TRAINYARD_OUTPUT"])
    (out / "kept.txt").write_text("kept")
    (out / "inside").symlink_to("kept.txt")
    (out / "outside").symlink_to("/etc/hostname")
    pathlib.Path("runs/new.txt").write_text("new")
    raise SystemExit(3)
    """

PARTNERS = """
    import os, sys, time
    index = int(os.environ["TRAINYARD_TASK_INDEX"])
    print("with", os.environ["TRAINYARD_TASK_COUNT"], "at", os.environ["TRAINYARD_MASTER_ADDR"], flush=True)
    if index == 0:
        time.sleep(1)
        raise SystemExit(0 if os.environ["TRAINYARD_ATTEMPT"] == "2" else 4)
    time.sleep(3 if os.environ["TRAINYARD_ATTEMPT"] == "2" else 60)
    """


@pytest.fixture(scope="module")
def environments(yard: Yard) -> list[dict[str, str]]:
    """Run four tasks of one GPU each on the cluster's four GPUs; return each task's environment."""
    job = """
        command: [python3, say.py]
        matrix: {n: [0, 1, 2, 3]}
        resources: {cpus: 0.5, gpus: 1}
        env: {COLOUR: red, N: "{n}"}
        """
    write_job(yard, "environment", job, say=SAY_ENVIRONMENT)
    yard.run("train.dispatch", "environment", "--skip-smoke")
    logs = sorted((newest(yard) / "logs").glob("*.log"))
    return [json.loads(log.read_text()) for log in logs]


@pytest.mark.core
def test_a_task_sees_its_own_gpu_and_its_place_in_the_run(
    environments: list[dict[str, str]],
) -> None:
    assert [len(one["CUDA_VISIBLE_DEVICES"].split(",")) for one in environments] == [1, 1, 1, 1]
    assert {one["TRAINYARD_TASK_INDEX"] for one in environments} == {"0", "1", "2", "3"}
    assert {one["TRAINYARD_TASK_COUNT"] for one in environments} == {"4"}
    assert {one["COLOUR"] for one in environments} == {"red"}
    assert {one["TRAINYARD_TASK"] for one in environments} == {"n=0", "n=1", "n=2", "n=3"}


@pytest.mark.core
def test_no_task_gets_the_token(yard: Yard, environments: list[dict[str, str]]) -> None:
    for one in environments:
        assert yard.token() not in one.values()
        assert "RAY_AUTH_TOKEN" not in one


@pytest.mark.core
def test_a_failed_task_brings_outputs_home_and_a_failed_start_says_why(yard: Yard) -> None:
    job = """
        outputs: [runs/]
        tasks:
          - {name: failing, command: [python3, fail.py]}
          - {name: absent, command: [pyhton3, train.py]}
          - {name: unlike, command: [./no-such-program]}
          - {name: from-windows, command: [./train.sh]}
        """

    write_job(yard, "failing", job, fail=OUTPUTS)
    script = yard.home / "jobs" / "failing" / "train.sh"
    script.write_bytes(b"#!/bin/sh\r\necho trained\r\n")
    script.chmod(0o755)
    (yard.home / "jobs" / "failing" / "runs").mkdir(exist_ok=True)
    (yard.home / "jobs" / "failing" / "runs" / "old.txt").write_text("old")
    done = yard.run("train.dispatch", "failing", "--skip-smoke", expect=1)
    run = newest(yard)
    brought = run / "outputs" / "failing"
    names = {str(path.relative_to(brought)) for path in brought.rglob("*") if not path.is_dir()}
    assert {"kept.txt", "inside", "runs/new.txt", "runs/old.txt"} <= names
    assert "outside" not in names
    notes = [event["text"] for event in events(run) if event["event"] == "note"]
    assert notes == [
        "failing: not brought back: outside: a link that leads outside (/etc/hostname)"
    ]
    ended = {one["task"]: one for one in of_kind(run, "attempt-ended")}
    absent, unlike = ended["absent"], ended["unlike"]
    first_line = (
        "its first line names a missing program: '#!/bin/sh\\r', which ends with a carriage return"
    )
    assert first_line in ended["from-windows"]["reason"]
    assert absent["reason"] == "no program 'pyhton3'"
    assert unlike["reason"] == "no program './no-such-program'"
    # Only the log names the directories that were searched, each once.
    (line,) = (run / "logs" / "absent.1.log").read_text().splitlines()
    searched = line.removeprefix("trainyard: no program 'pyhton3' in PATH: ").split(":")
    assert len(searched) == len(set(searched)) > 1
    assert (absent["tail"], searched[0] in done.stderr) == ([], False)


@pytest.mark.core
def test_tasks_of_a_gang_start_together_and_are_retried_together(yard: Yard) -> None:
    job = """
        command: [python3, partner.py]
        matrix: {rank: [0, 1, 2]}
        env: {RANK: "{rank}"}
        resources: {cpus: 1, gpus: 1}
        together: true
        retries: 1
        """

    write_job(yard, "gang", job, partner=PARTNERS)
    yard.run("train.dispatch", "gang", "--skip-smoke")
    run = newest(yard)
    outcomes = collections.Counter(
        (one["attempt"], one["outcome"]) for one in of_kind(run, "attempt-ended")
    )
    assert outcomes == {(1, "failed"): 1, (1, "stopped"): 2, (2, "succeeded"): 3}
    order = [event["event"] for event in events(run) if event["event"].startswith("attempt-")]
    assert order == (["attempt-started"] * 3 + ["attempt-ended"] * 3) * 2


def test_dozens_of_half_gpu_tasks_are_recorded_without_gap_or_wait(yard: Yard) -> None:
    count, last = 64, yard.home / "the-last-one-ran"
    script = (
        f"case $N in 40) until [ -e {last} ]; do sleep 0.2; done;; 50) exit 3;; "
        f"{count - 1}) touch {last};; esac"
    )

    job = f"""
        command: [sh, -c, '{script}; echo n$N']
        matrix: {{n: {list(range(count))}}}
        env: {{N: "{{n}}"}}
        resources: {{cpus: 0.5, gpus: 0.5}}
        """

    write_job(yard, "dozens", job)
    yard.run("train.dispatch", "dozens", "--skip-smoke", expect=1)
    run = newest(yard)
    # The link session_latest leads to the same directory: it is not counted.
    segments = sorted(yard.temp.glob(f"**/session_2*/logs/trainyard/{run.name}/stream.*.jsonl"))
    stream = [json.loads(line) for segment in segments for line in segment.read_text().splitlines()]
    assert [event["seq"] for event in stream] == list(range(len(stream)))
    assert stream[-1]["counts"] == {"succeeded": count - 1, "failed": 1, "stopped": 0}
    assert len(of_kind(run, "attempt-ended")) == count
    printed = {n: (run / "logs" / f"n={n}.1.log").read_text() for n in range(count) if n != 50}
    assert printed == {n: f"n{n}\n" for n in printed}


def of_kind(run: Path, kind: str) -> list[dict[str, Any]]:
    return [event for event in events(run) if event["event"] == kind]
