"""Run the groups of real tests side by side: most of their time is waiting. `python -m tests.together`.

Groups share nothing but the bed's Docker engine; pytest-xdist does not keep groups together with pytest 9.2 (seen).
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from types import FrameType
from typing import IO

GROUPS = ("breaking", "kubernetes and not breaking", "docker and not kubernetes", "not docker")
# What pytest exits with where a group has no test: after a choice of tests, that is no failure.
NOTHING_TO_RUN = 5
Run = tuple[str, "subprocess.Popen[bytes]", IO[bytes]]


def main(arguments: list[str]) -> int:
    """Run all groups, print what each said once it has ended, and return the worst exit code."""
    with tempfile.TemporaryDirectory() as home:
        runs = [_start(group, arguments, f"{home}/{number}") for number, group in enumerate(GROUPS)]

        def pass_on(number: int, frame: FrameType | None) -> None:
            for _, process, _ in runs:
                process.send_signal(number)

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, pass_on)
        return max(_ended(run) for run in runs)


def _start(group: str, arguments: list[str], said: str) -> Run:
    """Start one group, in a process group of its own: Ctrl-C reaches it once, from here."""
    output = open(said, "w+b")  # noqa: SIM115 (read again once the group has ended)
    command = [sys.executable, "-m", "pytest", "tests/real", "-m", group, *arguments]
    return group, subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True), output


def _ended(run: Run) -> int:
    group, process, output = run
    code = process.wait()
    output.seek(0)
    print(f"==== {group}", flush=True)
    sys.stdout.buffer.write(output.read())
    sys.stdout.flush()
    return 0 if code == NOTHING_TO_RUN else abs(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
