"""The keeper of a node, with a stand-in for `ray start`: its retries, its end, what it ends."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.real.yard import wait_until
from trainyard.backends.local.machine import GAVE_UP
from trainyard.backends.local.node_processes import KEEPER
from trainyard.seams import processes

TOO_BUSY = "Exception: The current node timed out during startup."


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "node.log").touch()
    return tmp_path


# Runs the keeper with this load average as the operating system's.
UNDER_LOAD = """
import os, runpy, sys
load = float(sys.argv[1])
os.getloadavg = lambda: (load, load, load)
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def _keep(place: Path, script: str, *, load: float = 0) -> processes.ProcessId:
    """Start a keeper of a Python script, as a node is started."""
    command = [sys.executable, "-c", UNDER_LOAD, str(load)]
    command += [str(KEEPER), str(place / "node.json"), str(place / "node.log")]
    command += [sys.executable, "-c", script]
    keeper = processes.start(command, env=os.environ, log=place / "node.log", directory=place)
    (place / "node.json").write_text(f'{{"process": {{"pid": {keeper.pid}}}}}')
    return keeper


def _keep_to_the_end(place: Path, script: str, *, load: float = 0) -> None:
    keeper = _keep(place, script, load=load)
    wait_until(lambda: _ended(keeper), seconds=60, what="the keeper ended")


def _ended(keeper: processes.ProcessId) -> bool:
    return not processes.alive(keeper)


def test_a_start_that_was_too_slow_is_tried_again(place: Path) -> None:
    script = (
        "import pathlib; t = pathlib.Path('tries'); n = t.exists(); t.touch(); n or "
        f"exit({TOO_BUSY!r})"
    )
    _keep_to_the_end(place, script)
    assert (place / "node.log").read_text().splitlines() == [TOO_BUSY]


def test_after_three_slow_tries_on_a_busy_machine_it_says_so(place: Path) -> None:
    _keep_to_the_end(place, f"exit({TOO_BUSY!r})", load=1000)
    *tries, last = (place / "node.log").read_text().splitlines()
    assert tries == [TOO_BUSY] * 3
    assert last.startswith(f"{GAVE_UP}; tried 3 times; load 1000.0 on ")


def test_three_slow_tries_on_an_idle_machine_end_with_the_node_s_words(place: Path) -> None:
    _keep_to_the_end(place, f"exit({TOO_BUSY!r})", load=0)
    assert (place / "node.log").read_text().splitlines() == [TOO_BUSY] * 3


def test_any_other_failure_is_final(place: Path) -> None:
    _keep_to_the_end(place, "exit('no such file')")
    assert (place / "node.log").read_text().splitlines() == ["no such file"]


def test_it_ends_what_left_its_session_when_it_is_asked_to_end(place: Path) -> None:
    daemon = "import subprocess, pathlib, time; "
    daemon += "p = subprocess.Popen(['sleep', '600'], start_new_session=True); "
    daemon += "pathlib.Path('pid').write_text(str(p.pid)); time.sleep(600)"
    keeper = _keep(place, daemon)
    wait_until(
        lambda: (place / "pid").exists() and (place / "pid").read_text() != "",
        seconds=60,
        what="it runs",
    )
    sleeper = processes.identify(int((place / "pid").read_text()))
    assert sleeper
    processes.terminate(keeper)
    wait_until(lambda: _ended(keeper) and _ended(sleeper), seconds=30, what="both ended")
