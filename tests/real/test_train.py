"""A job is dispatched and its results come home: exit codes, logs, outputs, documents."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.real.jobs import events, newest, printed_until, rest_of, write_job
from tests.real.yard import Done, Yard, wait_until

JOB = """
    command: [python3, train.py, "{seed}"]
    matrix: {seed: [0, 1]}
    resources: {cpus: 0.5}
    outputs: [runs/]
    """

PROGRAM = """
    import os, pathlib, random, sys
    seed = int(sys.argv[1])
    print("seed", seed)
    out = pathlib.Path(os.environ["TRAINYARD_OUTPUT"])
    (out / "noise.bin").write_bytes(random.Random(seed).randbytes(300_000))
    pathlib.Path("runs/deep").mkdir(parents=True)
    pathlib.Path("runs/deep/metrics.txt").write_text(f"{seed}\\n")
    """


@dataclass(frozen=True)
class Dispatched:
    """A dispatched run's directory, and what the command printed."""

    run: Path
    done: Done


@pytest.fixture(scope="module")
def green(yard: Yard) -> Dispatched:
    """Run a good job once, as a person would: with the smoke test, and text as output."""
    write_job(yard, "green", JOB, train=PROGRAM)
    done = yard.run("train.dispatch", "green")
    return Dispatched(newest(yard), done)


@pytest.fixture(scope="module")
def again(yard: Yard, green: Dispatched) -> Dispatched:
    """Run the same job once more, as a machine would: without the smoke test, and with --json."""
    done = yard.run("train.dispatch", "green", "--json", "--skip-smoke")
    return Dispatched(newest(yard), done)


@pytest.mark.core
def test_a_good_run_brings_everything_home(green: Dispatched) -> None:
    run = green.run
    for seed in (0, 1):
        assert (run / "logs" / f"seed={seed}.1.log").read_text() == f"seed {seed}\n"
        assert len((run / "outputs" / f"seed={seed}" / "noise.bin").read_bytes()) == 300_000
        assert (
            run / "outputs" / f"seed={seed}" / "runs" / "deep" / "metrics.txt"
        ).read_text() == f"{seed}\n"

    assert {path.name for path in run.iterdir() if not path.name.startswith(".")} == {
        "cluster.yaml",
        "job.yaml",
        "run.json",
        "events.jsonl",
        "logs",
        "outputs",
        "report.html",
    }


def test_a_pipe_gets_plain_lines_and_the_next_command(green: Dispatched) -> None:
    assert "[seed=0] seed 0" in green.done.stdout
    assert f"run {green.run.name} succeeded" in green.done.stdout
    assert green.done.stderr.splitlines()[-1].startswith("next: trainyard train.watch ")
    assert "\x1b" not in green.done.stdout + green.done.stderr


@pytest.mark.core
def test_json_is_one_document_in_the_documented_shape(yard: Yard, again: Dispatched) -> None:
    document = json.loads(again.done.stdout)
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


@pytest.mark.core
def test_an_unchanged_job_is_not_sent_again(again: Dispatched) -> None:
    sent = [line for line in again.done.stderr.splitlines() if "Send" in line]
    assert len(sent) == 2
    assert all("(already" in line for line in sent)


@pytest.mark.core
def test_the_token_is_nowhere_in_results_or_on_the_screen(
    yard: Yard, green: Dispatched, again: Dispatched
) -> None:
    token = yard.token()
    for dispatched in (green, again):
        assert token not in dispatched.done.stdout + dispatched.done.stderr
    for path in yard.results.rglob("*"):
        assert not path.is_file() or token.encode() not in path.read_bytes(), path


@pytest.mark.core
def test_the_logs_of_a_run_that_ended_are_printed_whole(yard: Yard, green: Dispatched) -> None:
    done = yard.run("train.logs", green.run.name)
    assert {"[seed=0] seed 0", "[seed=1] seed 1"} <= set(done.stdout.splitlines())
    one = yard.run("train.logs", green.run.name, "--task", "seed=1")
    assert "[seed=1] seed 1" in one.stdout
    assert "[seed=0] seed 0" not in one.stdout


def test_an_unknown_run_or_task_names_the_nearest(yard: Yard, green: Dispatched) -> None:
    name = green.run.name
    done = yard.run("train.status", name[:-1] + "x", expect=2)
    assert "no such run" in done.stderr
    assert "did you mean" in done.stderr
    done = yard.run("train.logs", name, "--task", "seed=7", expect=2)
    assert f"run {name} has no task 'seed=7'" in done.stderr
    assert yard.json("train.status", name[:-1])["run"] == name


def test_a_watched_run_prints_where_its_page_is_and_leaves_it_whole(
    yard: Yard, tmp_path: Path
) -> None:
    job = write_job(
        yard, "watched", f"command: [sh, -c, 'until [ -e {tmp_path}/go ]; do sleep 0.1; done']\n"
    )
    yard.run("train.dispatch", job, "--no-wait", "--skip-smoke")
    run = newest(yard)
    watching = yard.start("train.watch", run.name)
    assert str(run / "report.html") in printed_until("report.html", watching).splitlines()
    (tmp_path / "go").touch()
    code, rest = rest_of(watching)
    assert (code, f"run {run.name} succeeded" in rest) == (0, True), rest
    page = (run / "report.html").read_text()
    assert "The run is still active" not in page
    assert 'id="refresh"' not in page


def test_an_unfollowed_run_is_shown_whole_after_its_status_was_asked(
    yard: Yard, tmp_path: Path
) -> None:
    text = (
        "print('first', flush=True)\nimport pathlib, time\nwhile not "
        f"pathlib.Path('{tmp_path}/go').exists():\n"
    )
    job = write_job(
        yard, "unseen", "command: [python3, train.py]\n", train=f"{text}    time.sleep(0.1)\n"
    )
    yard.run("train.dispatch", job, "--no-wait", "--skip-smoke")
    log = newest(yard) / "logs" / "unseen.1.log"

    def recorded() -> bool:
        yard.run("train.status", newest(yard).name)
        return log.exists() and log.read_text() == "first\n"

    wait_until(recorded, seconds=60, what="a status records what the run printed")
    (tmp_path / "go").touch()
    assert yard.run("train.logs", newest(yard).name).stdout.count("first") == 1


@pytest.mark.core
def test_runs_are_compared_in_a_table_and_on_a_page(
    yard: Yard, green: Dispatched, again: Dispatched
) -> None:
    done = yard.run("train.compare", green.run.name, again.run.name)
    assert green.run.name in done.stdout and again.run.name in done.stdout
    assert done.stdout.splitlines()[-1].startswith("page: results/compare-")
    document = yard.json("train.compare", green.run.name, again.run.name)
    assert [run["state"] for run in document["runs"]] == ["succeeded", "succeeded"]
    assert document["differences"] == {}


def test_events_of_a_run_describe_the_hardware_and_packages_of_nodes(
    yard: Yard, green: Dispatched
) -> None:
    nodes = {event["name"]: event for event in events(green.run) if event["event"] == "node"}
    assert nodes.keys() == {"head", "gpu-0", "gpu-1"}
    assert nodes["head"]["cpu"] and nodes["head"]["cores"] and nodes["head"]["memory"]
    assert nodes["gpu-0"]["packages"]["numpy"]


@pytest.mark.core
def test_outputs_that_are_missing_here_are_fetched_again(yard: Yard, green: Dispatched) -> None:
    shutil.rmtree(green.run / "outputs" / "seed=0")
    yard.run("train.fetch", green.run.name)
    assert len((green.run / "outputs" / "seed=0" / "noise.bin").read_bytes()) == 300_000


@pytest.mark.core
def test_a_failed_task_prints_its_last_lines_and_exits_1(yard: Yard) -> None:
    job = write_job(
        yard,
        "failing",
        "command: [python3, train.py]\nretries: 1\n",
        train="print('loss is nan'); raise SystemExit(3)",
    )

    done = yard.run("train.dispatch", job, "--skip-smoke", expect=1)
    assert "last lines of failing (" in done.stdout
    assert "    loss is nan" in done.stdout
    document = yard.json("train.status")
    assert (document["state"], document["exit"]) == ("failed", 1)
    assert [attempt["exit_code"] for attempt in document["tasks"][0]["attempts"]] == [3, 3]
    yard.run("train.dispatch", job, "--skip-smoke", "--set", "final_exit_codes=[2,3]", expect=1)
    assert [len(task["attempts"]) for task in yard.json("train.status")["tasks"]] == [1]


@pytest.mark.core
def test_a_failed_gate_starts_nothing_and_exits_5(yard: Yard) -> None:
    job = write_job(yard, "needy", "command: [touch, started]\nsmoke: {min_disk: 900TB}\n")
    done = yard.run("train.dispatch", job, expect=5)
    assert "FAILED  disk" in done.stdout
    assert not [event for event in events(newest(yard)) if event["event"] == "attempt-started"]


@pytest.mark.core
def test_a_job_that_can_never_fit_is_refused_before_anything_is_sent(yard: Yard) -> None:
    before = set(yard.results.glob("*"))
    job = write_job(yard, "huge", "command: [ 'true' ]\nresources: {gpus: 4}\nnode: {group: gpu}\n")
    done = yard.run("train.dispatch", job, expect=2)
    said = "task 'huge' asks for 1 CPU, 4 GPUs, a node of group gpu; the largest node has"
    assert (done.stdout + done.stderr).count(said) == 1
    more = yard.run("train.dispatch", job, "--set", "resources={cpus: 1000}", expect=2)
    assert (
        "task 'huge' asks for 1000 CPUs, a node of group gpu; the largest node has" in more.stderr
    )
    assert "at job huge on cluster yard; nothing was sent" in more.stderr
    assert set(yard.results.glob("*")) == before


def test_a_share_is_of_a_node_with_gpus_and_a_gang_of_them_fills_the_nodes(yard: Yard) -> None:
    task = (
        "import os; print('has', os.environ['OMP_NUM_THREADS'], "
        "len(os.environ['CUDA_VISIBLE_DEVICES'].split(',')))"
    )
    text = (
        "command: [python3, train.py, '{n}']\nmatrix: {n: [0, 1, 2, 3]}\nresources: {share: "
        "1/2}\ntogether: true\n"
    )
    job = write_job(yard, "shared", text, train=task)
    done = yard.run("train.dispatch", job, "--skip-smoke")
    assert done.stdout.count("] has 1 1\n") == 4
    places = [task["attempts"][0]["node"] for task in yard.json("train.status")["tasks"]]
    assert sorted(places) == ["gpu-0", "gpu-0", "gpu-1", "gpu-1"]
    whole = ["--set", "resources.share=1", "--skip-smoke"]
    assert (
        "4 tasks that run together do not fit"
        in yard.run("train.dispatch", job, *whole, expect=2).stderr
    )
    # The tasks run one after the other, each with all of a node.
    done = yard.run("train.dispatch", job, *whole, "--set", "together=false")
    assert done.stdout.count("] has 2 2\n") == 4


def test_a_dry_dispatch_and_one_to_two_clusters_create_no_results(
    yard: Yard, green: Dispatched
) -> None:
    before = set(yard.results.glob("*"))
    done = yard.run("--dry", "train.dispatch", "green")
    assert "job green on cluster yard: 2 tasks" in done.stderr
    assert "sends 2 files" in done.stderr
    assert done.stderr.endswith("tasks: seed=0, seed=1\nnothing was sent (--dry)\n")
    several = yard.run("train.dispatch", "green", "-f", "a", "-f", "b", expect=2)
    assert "a run uses one cluster" in several.stderr
    assert set(yard.results.glob("*")) == before


def test_thirty_two_megabytes_come_back_byte_for_byte(yard: Yard) -> None:
    job = write_job(
        yard,
        "big",
        "command: [python3, train.py]\n",
        train="""
        import hashlib, os, pathlib
        digest = hashlib.sha256()
        with (pathlib.Path(os.environ["TRAINYARD_OUTPUT"]) / "model.bin").open("wb") as model:
            for _ in range(32):
                block = os.urandom(1_000_000)
                digest.update(block)
                model.write(block)
        print(digest.hexdigest())
        """,
    )

    yard.run("train.dispatch", job, "--skip-smoke")
    run = newest(yard)
    with (run / "outputs" / "big" / "model.bin").open("rb") as model:
        found = (
            hashlib.file_digest(model, "sha256")
            if hasattr(hashlib, "file_digest")
            else hashlib.sha256(model.read())
        )

    assert (run / "logs" / "big.1.log").read_text().strip() == found.hexdigest()
