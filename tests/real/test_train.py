"""A job goes out and its results come home: exit codes, logs, outputs, documents."""

from __future__ import annotations

import hashlib
import json

import pytest

from tests.real.jobs import events, newest, write_job
from tests.real.yard import Yard


@pytest.fixture(scope="module")
def green(yard: Yard) -> str:
    """Give a job that leaves outputs."""
    return write_job(
        yard,
        "green",
        """
        command: [python3, train.py, "{seed}"]
        matrix: {seed: [0, 1]}
        resources: {cpus: 0.5}
        outputs: [runs/]
        """,
        train="""
        import os, pathlib, random, sys
        seed = int(sys.argv[1])
        print("seed", seed)
        out = pathlib.Path(os.environ["TRAINYARD_OUTPUT"])
        (out / "noise.bin").write_bytes(random.Random(seed).randbytes(300_000))
        pathlib.Path("runs/deep").mkdir(parents=True)
        pathlib.Path("runs/deep/metrics.txt").write_text(f"{seed}\\n")
        """,
    )


def test_a_good_run_exits_0_and_brings_everything_home(yard: Yard, green: str) -> None:
    done = yard.run("train.dispatch", green)
    run = newest(yard)
    assert "[seed=0] seed 0" in done.stdout
    assert f"run {run.name} succeeded" in done.stdout
    assert done.stderr.splitlines()[-1] == f"next: invoke train.report {run.name}"
    assert "\x1b" not in done.stdout + done.stderr
    for seed in (0, 1):
        assert (run / "logs" / f"seed={seed}.1.log").read_text() == f"seed {seed}\n"
        assert len((run / "outputs" / f"seed={seed}" / "noise.bin").read_bytes()) == 300_000
        assert (run / "outputs" / f"seed={seed}" / "runs" / "deep" / "metrics.txt").read_text() == f"{seed}\n"
    assert {path.name for path in run.iterdir() if not path.name.startswith(".")} == {
        "cluster.yaml",
        "job.yaml",
        "run.json",
        "events.jsonl",
        "logs",
        "outputs",
        "report.html",
    }
    assert [event["seq"] for event in events(run)] == sorted(event["seq"] for event in events(run))


def test_json_is_one_document_in_the_documented_shape(yard: Yard, green: str) -> None:
    done = yard.run("train.dispatch", green, "--json")
    document = json.loads(done.stdout)
    assert document["state"] == "succeeded"
    assert document["cluster"] == yard.cluster
    assert [task["name"] for task in document["tasks"]] == ["seed=0", "seed=1"]
    for task in document["tasks"]:
        assert task["state"] == "succeeded"
        (attempt,) = task["attempts"]
        assert attempt["exit_code"] == 0 and attempt["seconds"] > 0 and attempt["reason"] is None
        assert attempt["node"] in ("head", "gpu-0", "gpu-1")
    status = yard.json("train.status", document["run"])
    assert {key: status[key] for key in document} == document


def test_an_unchanged_job_is_not_sent_again(yard: Yard, green: str) -> None:
    yard.run("train.dispatch", green)
    done = yard.run("train.dispatch", green)
    sent = [line for line in done.stderr.splitlines() if "Send" in line]
    assert len(sent) == 2 and all("(already)" in line for line in sent)


def test_the_token_is_nowhere_in_results_or_on_the_screen(yard: Yard, green: str) -> None:
    done = yard.run("train.dispatch", green)
    token = yard.token().encode()
    assert token not in (done.stdout + done.stderr).encode()
    for path in yard.results.rglob("*"):
        assert not path.is_file() or token not in path.read_bytes(), path


def test_a_failed_task_prints_its_last_lines_and_exits_1(yard: Yard) -> None:
    job = write_job(
        yard, "failing", "command: [python3, train.py]\nretries: 1\n", train="print('loss is nan'); raise SystemExit(3)"
    )
    done = yard.run("train.dispatch", job, expect=1)
    assert "last lines of failing (" in done.stdout
    assert "    loss is nan" in done.stdout
    assert done.stderr.splitlines()[-2].startswith("error: ") or "error: " in done.stderr
    document = yard.json("train.status", expect=0)
    assert (document["state"], document["exit"]) == ("failed", 1)
    assert [attempt["exit_code"] for attempt in document["tasks"][0]["attempts"]] == [3, 3]


def test_a_task_that_takes_too_long_fails_the_run(yard: Yard) -> None:
    job = write_job(yard, "slow", "command: [sleep, '60']\ntimeout: 1s\n")
    document = yard.json("train.dispatch", job, expect=1)
    (attempt,) = document["tasks"][0]["attempts"]
    assert (document["state"], attempt["outcome"]) == ("failed", "timeout")


def test_a_failed_gate_starts_nothing_and_exits_5(yard: Yard) -> None:
    job = write_job(yard, "needy", "command: [touch, started]\nsmoke: {min_nodes: 50}\n")
    done = yard.run("train.dispatch", job, expect=5)
    assert "FAILED  nodes" in done.stdout
    assert not [event for event in events(newest(yard)) if event["event"] == "attempt-started"]


def test_without_the_gate_the_same_job_runs(yard: Yard) -> None:
    job = write_job(yard, "needy", "command: [touch, started]\nsmoke: {min_nodes: 50}\n")
    yard.run("train.dispatch", job, "--skip-smoke")


def test_a_job_that_can_never_fit_is_refused_before_anything_is_sent(yard: Yard) -> None:
    before = set(yard.results.glob("*"))
    job = write_job(yard, "huge", "command: [ 'true' ]\nresources: {gpus: 4}\nnode: {group: gpu}\n")
    done = yard.run("train.dispatch", job, expect=2)
    assert "a task needs 1 CPU, 4 GPU, but no node has that much (gpu: 2 CPU, 2 GPU, 1 GiB)" in done.stderr
    assert set(yard.results.glob("*")) == before


def test_problems_of_both_files_come_at_once(yard: Yard) -> None:
    yard.write_cluster("name: {name}\nbackend: lokal\n", name="wrong")
    job = write_job(yard, "wrong", "comand: [x]\n")
    done = yard.run("train.dispatch", job, "-f", "wrong", expect=2)
    (yard.home / "clusters" / "wrong.yaml").unlink()
    assert "lokal" in done.stderr and "comand" in done.stderr


def test_dry_says_what_would_be_sent_and_changes_nothing(yard: Yard, green: str) -> None:
    before = set(yard.results.glob("*"))
    done = yard.run("--dry", "train.dispatch", green)
    assert "job green on cluster yard: 2 tasks" in done.stderr
    assert "sends 2 files" in done.stderr
    assert set(yard.results.glob("*")) == before


def test_a_run_on_several_clusters_is_refused_with_a_reason(yard: Yard, green: str) -> None:
    done = yard.run("train.dispatch", green, "-f", "a", "-f", "b", expect=2)
    assert "several clusters at once is not built yet" in done.stderr


def test_an_unknown_run_names_the_nearest(yard: Yard, green: str) -> None:
    yard.run("train.dispatch", green)
    name = newest(yard).name
    done = yard.run("train.status", name[:-1] + "x", expect=2)
    assert "no such run" in done.stderr and "did you mean" in done.stderr
    assert yard.json("train.status", name[:-1])["run"] == name


def test_two_hundred_megabytes_come_back_byte_for_byte(yard: Yard) -> None:
    job = write_job(
        yard,
        "big",
        "command: [python3, train.py]\n",
        train="""
        import hashlib, os, pathlib
        digest = hashlib.sha256()
        with (pathlib.Path(os.environ["TRAINYARD_OUTPUT"]) / "model.bin").open("wb") as model:
            for _ in range(200):
                block = os.urandom(1_000_000)
                digest.update(block)
                model.write(block)
        print(digest.hexdigest())
        """,
    )
    yard.run("train.dispatch", job)
    run = newest(yard)
    with (run / "outputs" / "big" / "model.bin").open("rb") as model:
        found = (
            hashlib.file_digest(model, "sha256") if hasattr(hashlib, "file_digest") else hashlib.sha256(model.read())
        )
    assert (run / "logs" / "big.1.log").read_text().strip() == found.hexdigest()
