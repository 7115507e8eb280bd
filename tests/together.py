"""Run the groups of real tests side by side: much of their time is waiting. `python -m tests.together`.

Groups share nothing but the bed's Docker engine; pytest-xdist does not keep groups together with pytest 9.2 (seen).
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType

from tests.bed.places import all_must_run
from tests.tools import ON_THIS_MACHINE, Machine, look, obstacle

# A test is of the first of these groups by whose name it is marked; of LOCAL, if by none.
MARKS = ("waiting", "ec2", "microk8s", "breaking", "kubernetes", "docker")
LOCAL = "local"
# Two groups at a time, and beside them one of those that wait the most: three busy ones were seen to keep
# a machine with two CPUs too busy for Ray's own time limits. In this order all CPUs have work to the end.
BUSY = (LOCAL, "ec2", "docker", "kubernetes")
BUSY_AT_ONCE = 2
PATIENT = ("breaking", "waiting", "microk8s")
# What pytest exits with: the latter where a group has no test, which is no failure after a choice of tests.
TESTS_FAILED, NOTHING_TO_RUN = 1, 5


def chosen(group: str) -> str:
    """Return what `pytest -m` takes for the tests of a group."""
    if group == LOCAL:
        return f"not {' and not '.join(MARKS)}"
    return " and not ".join((group, *MARKS[: MARKS.index(group)]))


class Together:
    """The groups that run, and whether somebody wants them to end."""

    def __init__(self, arguments: list[str], home: Path) -> None:
        self._arguments = arguments
        self._home = home
        self._running: list[subprocess.Popen[bytes]] = []
        self._ending = 0
        self._printing = threading.Lock()

    def run(self, group: str) -> int:
        """Run one group to its end, and modules in which a test failed once more (decision 0027); return the code."""
        code = self._run(group, group, "tests/real")
        if code == TESTS_FAILED:
            failed = json.loads((self._home / "cache" / group / "v/cache/lastfailed").read_text())
            code = self._run(group, f"{group}, once more", *sorted({test.partition("::")[0] for test in failed}))
        return 0 if code == NOTHING_TO_RUN else abs(code)

    def _run(self, group: str, title: str, *paths: str) -> int:
        """Run the tests of a group that are at these paths, print what pytest printed, and return its exit code."""
        if self._ending:
            return self._ending
        log, options = self._home / title, ("-m", chosen(group), "-o", f"cache_dir={self._home}/cache/{group}", "-ra")
        with log.open("wb") as output:
            # In a process group of its own: Ctrl-C reaches it once, from here.
            command = [sys.executable, "-m", "pytest", *paths, *options, *self._arguments]
            process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
            self._running.append(process)
            if self._ending:
                process.send_signal(self._ending)
            code = process.wait()
        with self._printing:
            sys.stdout.buffer.write(f"==== {title}\n".encode() + log.read_bytes())
            sys.stdout.flush()
        return code

    def end(self, number: int, frame: FrameType | None) -> None:
        """Pass a signal on; nothing new is started after it."""
        self._ending = number
        for process in self._running:
            process.send_signal(number)


def left_out(machine: Machine) -> list[str]:
    """Return the groups that cannot run here: all that use the tests' Docker engine."""
    return [group for group in (*BUSY, *PATIENT) if group != LOCAL] if obstacle(machine) else []


def summary(codes: Mapping[str, int], machine: Machine) -> str:
    """Return the last line of `make test`: what passed, failed and was left out, and why."""
    failed = [group for group, code in codes.items() if code != 0]
    passed = [group for group, code in codes.items() if code == 0]
    said = [f"failed: {', '.join(failed)}"] if failed else []
    if passed:
        said.append(f"passed: {', '.join(passed)}")

    if left_out(machine):
        said.append(f"left out: {', '.join(left_out(machine))}, since {obstacle(machine)}")
    absent = sorted(machine.missing & ON_THIS_MACHINE.keys())
    if absent:
        said.append(f"left out: what uses {', '.join(absent)}, which this machine lacks")
    return "; ".join(said)


def main(arguments: list[str]) -> int:
    """Run the groups, print what each said once it has ended, and return the worst exit code."""
    machine = look()
    if left_out(machine) and all_must_run():
        missed = f"{', '.join(left_out(machine))}, since {obstacle(machine)}"
        sys.exit(f"error: TRAINYARD_TESTS=all, but these cannot run: {missed}")

    with tempfile.TemporaryDirectory() as home, ThreadPoolExecutor(BUSY_AT_ONCE) as two, ThreadPoolExecutor(1) as one:
        together = Together(arguments, Path(home))
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, together.end)
        running = {
            group: threads.submit(together.run, group)
            for threads, groups in ((two, BUSY), (one, PATIENT))
            for group in groups
            if group not in left_out(machine)
        }
        codes = {group: code.result() for group, code in running.items()}

    print(f"make test: {summary(codes, machine)}")
    return max(codes.values())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
