"""Outputs of every attempt come home, also during it; a lost output is named, others are kept."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bed.places import need
from tests.real.jobs import events, newest, write_job
from tests.real.yard import Yard, wait_until
from trainyard.backends.local.naming import ClusterFiles

# Appends a row to the rows that it finds; the first attempt fails.
APPENDING = """
    import os, pathlib
    attempt = os.environ["TRAINYARD_ATTEMPT"]
    out = pathlib.Path(os.environ["TRAINYARD_OUTPUT"])
    pathlib.Path("runs").mkdir(exist_ok=True)
    for path in (out / "metrics.csv", pathlib.Path("runs/log.txt")):
        with path.open("a") as file:
            file.write(f"attempt {attempt}\\n")
    (out / f"only-{attempt}").touch()
    (out / "only-1").unlink() if attempt == "2" and (out / "only-1").exists() else None
    raise SystemExit(attempt == "1")
    """

LIVE = """
    import itertools, os, pathlib, time
    out = pathlib.Path(os.environ["TRAINYARD_OUTPUT"])
    for row in itertools.count():
        with (out / "metrics.csv").open("a") as file:
            file.write(f"row {row}\\n")
        time.sleep(0.1)
    """

LARGE = """
    import os, pathlib
    out = pathlib.Path(os.environ["TRAINYARD_OUTPUT"])
    (out / "metrics.csv").write_text("1\\n")
    if os.environ["TRAINYARD_TASK"] == "n=0":
        (out / "large.bin").write_bytes(os.urandom(2_000_000))
    """

HOGS = """
    import os, pathlib, sys, time
    out = pathlib.Path(os.environ["TRAINYARD_OUTPUT"])
    print("begins", flush=True)
    if sys.argv[1] == "prints":
        sys.stdout.write("x" * 60_000_000)
    elif sys.argv[1] == "leaves":
        (out / "large.bin").write_bytes(os.urandom(60_000_000))
    else:
        time.sleep(4)
        (out / "small.txt").write_text("kept")
    print("ends", flush=True)
    """


def outputs(run: Path, task: str) -> dict[str, str]:
    """Return the text files among a task's outputs at home."""
    place = run / "outputs" / task
    return {
        str(path.relative_to(place)): path.read_text()
        for path in sorted(place.rglob("*"))
        if path.is_file()
    }


@pytest.mark.core
def test_a_retry_continues_from_the_files_of_the_failed_attempt(yard: Yard) -> None:
    write_job(
        yard, "goes-on", "command: [python3, go.py]\noutputs: [runs/]\nretries: 1\n", go=APPENDING
    )
    yard.run("train.dispatch", "goes-on", "--skip-smoke")
    both = "attempt 1\nattempt 2\n"
    assert outputs(newest(yard), "goes-on") == {
        "metrics.csv": both,
        "runs/log.txt": both,
        "only-2": "",
    }


def test_each_attempt_may_have_outputs_of_its_own(yard: Yard) -> None:
    job = "command: [python3, go.py]\noutputs: [runs/]\noutputs_each_attempt: true\nretries: 1\n"
    write_job(yard, "begins-anew", job, go=APPENDING)
    yard.run("train.dispatch", "begins-anew", "--skip-smoke")
    assert outputs(newest(yard), "begins-anew") == {
        f"attempt-{attempt}/{name}": text
        for attempt in (1, 2)
        for name, text in {
            "metrics.csv": f"attempt {attempt}\n",
            "runs/log.txt": f"attempt {attempt}\n",
            f"only-{attempt}": "",
        }.items()
    }


@pytest.mark.core
def test_outputs_come_home_while_the_task_runs(yard: Yard) -> None:
    write_job(yard, "live", "command: [python3, live.py]\noutputs_every: 1s\n", live=LIVE)
    yard.run("train.dispatch", "live", "--skip-smoke", "--no-wait")
    run = newest(yard)

    def rows() -> int:
        yard.run("train.fetch", run.name)
        return len(outputs(run, "live").get("metrics.csv", "").splitlines())

    wait_until(lambda: rows() > 0, seconds=60, what="the first rows are here")
    before = rows()
    wait_until(lambda: rows() > before, seconds=60, what="more rows are here")
    yard.run("train.report", run.name)
    yard.run("train.stop", run.name, expect=None)
    assert outputs(run, "live")["metrics.csv"].startswith("row 0\nrow 1\n")


def test_an_output_beyond_the_limit_is_lost_alone_and_the_exit_code_is_1(yard: Yard) -> None:
    job = 'command: [python3, large.py, "{n}"]\nmatrix: {n: [0, 1]}\noutputs_limit: 1MB\n'
    write_job(yard, "large", job, large=LARGE)
    done = yard.run("train.dispatch", "large", "--skip-smoke", expect=1)
    run = newest(yard)
    reason = "large.bin: 1.91 MiB of outputs are more than the job's outputs_limit of 0.954 MiB"
    assert f"outputs of 1 of 2 tasks could not be brought back: n=0: {reason}" in done.stderr
    assert f"n=0: not brought back: {reason}" in done.stdout
    assert outputs(run, "n=0") == outputs(run, "n=1") == {"metrics.csv": "1\n"}
    assert {task["state"] for task in yard.json("train.status", run.name)["tasks"]} == {"succeeded"}


# Writes a file through a memory map, which does not change the file's time once the page is dirty.
# Then rewrites another file in place, and restores its time. Removes nothing.
STORES = """
    import mmap, os, time
    with open("model.bin", "r+b") as file, mmap.mmap(file.fileno(), 0) as model:
        for step in range(4):
            model[0:1] = str(step).encode()
            time.sleep(0.7)
    found = os.stat("same.bin")
    time.sleep(1.2)
    with open("same.bin", "r+b") as file:
        file.write(b"9")
    os.utime("same.bin", ns=(found.st_atime_ns, found.st_mtime_ns))
    """


def test_a_change_that_keeps_its_time_comes_home_and_is_kept_for_a_retry(yard: Yard) -> None:
    job = "command: [python3, stores.py]\noutputs: [model.bin, same.bin]\noutputs_every: 1s\n"
    write_job(yard, "stores", job, stores=STORES)
    for name in ("model.bin", "same.bin"):
        (yard.home / "jobs/stores" / name).write_text("-" * 4096)
    yard.run("train.dispatch", "stores", "--skip-smoke")
    assert {name: text[0] for name, text in outputs(newest(yard), "stores").items()} == {
        "model.bin": "3",
        "same.bin": "9",
    }


@pytest.mark.parametrize(
    ("to", "ends", "code"),
    [
        ("| head -1 >/dev/null", 3, 1),
        (">/dev/full", 3, 1),
        (">/dev/full", 0, 6),
        ("2>/dev/full >/dev/null", 0, 0),
    ],
)
def test_a_run_is_followed_to_its_end_when_its_output_cannot_be_printed(
    yard: Yard, to: str, ends: int, code: int
) -> None:
    make = (
        "for i in 1 2 3 4; do echo $i; sleep 0.5; done; echo all > $TRAINYARD_OUTPUT/all; "
        f"exit {ends}"
    )
    write_job(yard, "outlives", f"command: [sh, -c, '{make}']\n")
    line = (
        f"{shlex.join(yard.command('train.dispatch', 'outlives', '--skip-smoke'))} {to}; exit "
        "${PIPESTATUS[0]}"
    )
    done = subprocess.run(
        ["bash", "-c", line], cwd=yard.home, env=yard.env(), capture_output=True, timeout=100
    )
    assert done.returncode == code, done
    assert outputs(newest(yard), "outlives") == {"all": "all\n"}


@pytest.mark.parametrize(
    ("link", "is_lost"),
    [
        ("$PWD/best.pt $TRAINYARD_OUTPUT/link", True),
        ("$PWD/best.pt model/link", True),
        ("../best.pt model/link", True),
        ("$PWD/model/first.pt model/link", False),
        ("/etc/hostname model/link", False),
    ],
)
def test_a_link_to_what_goes_with_the_task_is_a_loss_however_it_is_written(
    yard: Yard, link: str, is_lost: bool
) -> None:
    make = f"mkdir model; echo 1 > best.pt; echo 1 > model/first.pt; ln -s {link}"
    write_job(yard, "links", f"command: [sh, -c, '{make}']\noutputs: [model]\n")
    done = yard.run("train.dispatch", "links", "--skip-smoke", expect=1 if is_lost else 0)
    assert ("could not be brought back" in done.stderr) == is_lost


@pytest.fixture
def small_disk(yard: Yard) -> Iterator[None]:
    """Give the head 24 MB for the records of runs, inside the block."""
    need(["mount", "umount"])
    place = ClusterFiles(yard.state).node_temp("head") / "session_latest" / "logs" / "trainyard"
    place.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(place)], check=True)
    yield
    subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.mark.parametrize("what", ["prints", "leaves"])
def test_a_full_disk_on_the_head_ends_the_task_that_filled_it(
    yard: Yard, small_disk: None, what: str
) -> None:
    job = f"""
        command: [python3, hog.py, "{{what}}"]
        matrix: {{what: [{what}, neither]}}
        retries: 2
        """

    write_job(yard, "hogs", job, hog=HOGS)
    yard.run("train.dispatch", "hogs", "--skip-smoke", expect=1)
    run = newest(yard)
    ended = [event for event in events(run) if event["event"] == "attempt-ended"]
    assert {(one["task"], one["attempt"], one["outcome"], one["reason"]) for one in ended} == {
        (f"what={what}", 1, "failed", "no space left on device, node head"),
        ("what=neither", 1, "succeeded", None),
    }
    assert (run / "logs" / "what=neither.1.log").read_text() == "begins\nends\n"
    assert outputs(run, "what=neither") == {"small.txt": "kept"}
