"""Run tiers of real tests, their lanes at the same time: much of their time is waiting.

`python -m tests.together core`. Lanes share nothing but the bed's Docker engine. pytest-xdist would
not do: with pytest 9.2 it does not keep modules together, and ends its workers before their
clusters are removed (both seen).
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from types import FrameType

from tests import areas, dealing, history
from tests.bed.places import all_must_run
from tests.dealing import Ran
from tests.tiers import LIFECYCLE, TIERS, Lane, lanes
from tests.tools import AGAIN, ON_THIS_MACHINE, Machine, Supplies, announcement, look, obstacle

# Processes at a time: three kept a machine with two CPUs too busy for Ray's own time limits (seen).
AT_ONCE = 2
# The failed modules of a lane run once more (decision 0027) if together they took less than this.
SECONDS_TWICE = 1800
# pytest's exit codes. The second one: other processes claimed all modules, or the given choice of
# tests leaves none.
TESTS_FAILED, NOTHING_TO_RUN = 1, 5


@dataclass(frozen=True)
class Process:
    """The end of one process of a lane: exit code, failed modules, and whether a signal came."""

    code: int
    failed: Mapping[str, Ran] = field(default_factory=dict)
    is_cut: bool = False


@dataclass(frozen=True)
class Ended:
    """How a lane ended: its exit code, the modules that ran twice, and whether a signal came."""

    code: int
    twice: tuple[str, ...] = ()
    is_cut: bool = False


class Together:
    """The processes in flight, their records, and whether a signal asks them to end.

    After `until` (seconds since the epoch) no module begins, except failed ones that run once more.
    """

    def __init__(
        self, arguments: list[str], home: Path, supplies: Supplies, *, until: float
    ) -> None:
        self._arguments = arguments
        self._home = home
        self._until = until
        self._supplies = supplies
        self._running: list[subprocess.Popen[bytes]] = []
        self._ending = 0
        self._printing = threading.Lock()

    def run(self, lane: Lane, number: int) -> Process:
        """Run one process of a lane to its end."""
        name = f"{lane.name} {number}" if lane.processes > 1 else lane.name
        try:
            self._supplies.bring(lane.uses)
        except (RuntimeError, subprocess.SubprocessError) as error:
            if not self._ending:
                print(f"==== {name}\nerror: {error}\n{AGAIN}", flush=True)
            return Process(0 if self._is_late() else TESTS_FAILED, is_cut=bool(self._ending))

        code = self._pytest(
            lane, name, self.dealt(lane), "tests/real", "--deal-until", str(self._until)
        )
        failed = {
            module: ran
            for module, ran in dealing.read(self.dealt(lane), name).items()
            if ran.failed
        }

        if self._ending:
            if failed:
                code = TESTS_FAILED
            elif self._is_late():
                code = 0
            return Process(abs(code), failed, is_cut=True)

        return Process(0 if code == NOTHING_TO_RUN else abs(code), failed)

    def once_more(self, lane: Lane, processes: Collection[Process]) -> Ended:
        """Run a lane's failed modules once more, if only tests failed and the modules are quick."""
        ended = Ended(
            max(process.code for process in processes),
            is_cut=any(process.is_cut for process in processes),
        )
        failed = {module: ran for process in processes for module, ran in process.failed.items()}
        is_quick = sum(ran.seconds for ran in failed.values()) < SECONDS_TWICE
        if self._ending or ended.code != TESTS_FAILED or not failed or not is_quick:
            return ended

        name = f"{lane.name}, once more"
        code = self._pytest(lane, name, self._home / name, *sorted(failed))
        return Ended(abs(code), tuple(failed), is_cut=ended.is_cut)

    def dealt(self, lane: Lane) -> Path:
        """Return the directory in which the processes of a lane share out the modules."""
        return self._home / lane.name

    def _is_late(self) -> bool:
        """Say whether SIGTERM came after `until`: tests ended because their time was up."""
        return self._ending == signal.SIGTERM and time.time() > self._until

    def _pytest(self, lane: Lane, name: str, deal: Path, *words: str) -> int:
        """Run tests of a lane with these pytest arguments; print output, return the exit code."""
        if self._ending:
            return self._ending

        deal.mkdir(exist_ok=True)
        ours = (
            "-p",
            "tests.dealing",
            "--deal",
            str(deal),
            "--dealer",
            name,
            "-p",
            "no:cacheprovider",
        )

        with (self._home / f"{name}.log").open("w+b") as output:
            # pytest gets a process group of its own: Ctrl-C reaches it once, passed on by `end`.
            command = [
                sys.executable,
                "-m",
                "pytest",
                *words,
                "-m",
                lane.marks,
                *ours,
                *self._arguments,
            ]

            process = subprocess.Popen(
                command, stdout=output, stderr=output, start_new_session=True
            )
            self._running.append(process)

            if self._ending:
                process.send_signal(self._ending)

            code = process.wait()
            output.seek(0)

            with self._printing:
                sys.stdout.buffer.write(f"==== {name}\n".encode() + output.read())
                sys.stdout.flush()

        return code

    def end(self, number: int, frame: FrameType | None) -> None:
        """Pass a signal on to the running processes; no new process starts after it."""
        self._ending = number
        for process in self._running:
            process.send_signal(number)


def left_out(tiers: Collection[str], machine: Machine) -> list[str]:
    """Return the lanes that cannot run: those that need the tests' Docker engine, if it cannot."""
    return [lane.name for lane in lanes(tiers) if lane.has_engine] if obstacle(machine) else []


def summary(codes: Mapping[str, int], tiers: Collection[str], machine: Machine) -> str:
    """Return the last line: which lanes passed, failed and were left out, and why."""
    failed = [lane for lane, code in codes.items() if code != 0]
    passed = [lane for lane, code in codes.items() if code == 0]
    said = [f"failed: {', '.join(failed)}"] if failed else []
    if passed:
        said.append(f"passed: {', '.join(passed)}")

    if left_out(tiers, machine):
        said.append(f"left out: {', '.join(left_out(tiers, machine))}, since {obstacle(machine)}")
    absent = sorted(machine.missing & ON_THIS_MACHINE.keys())
    if absent:
        said.append(f"left out: what uses {', '.join(absent)}, which this machine lacks")
    return "; ".join(said)


def run_all(together: Together, chosen: list[Lane]) -> dict[str, Ended]:
    """Run the processes of these lanes, AT_ONCE at a time; return how each lane ended.

    A lane's second process, which makes clusters of its own, starts after the first processes of
    all lanes. Failed modules run once more when all lanes have ended, one lane at a time.
    """
    in_turn = sorted(
        (number, place)
        for place, lane in enumerate(chosen)
        for number in range(1, lane.processes + 1)
    )
    with ThreadPoolExecutor(AT_ONCE) as pool:
        running: dict[str, list[Future[Process]]] = {lane.name: [] for lane in chosen}
        for number, place in in_turn:
            running[chosen[place].name].append(pool.submit(together.run, chosen[place], number))
        processes = {
            lane: [process.result() for process in futures] for lane, futures in running.items()
        }
    return {lane.name: together.once_more(lane, processes[lane.name]) for lane in chosen}


def main(words: list[str]) -> int:
    """Run tiers, by default all; print output and modules' times; return the worst exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.together", description=__doc__)
    parser.add_argument("tiers", nargs="*", help=f"of {', '.join((*TIERS, LIFECYCLE))}")
    parser.add_argument(
        "--changed", nargs="?", const="", metavar="BASE", help="and the tiers that a change touches"
    )
    parser.add_argument(
        "--until", type=float, default=inf, metavar="TIME", help="begin no module after it (epoch)"
    )
    asked, for_pytest = parser.parse_known_args(words)
    tiers = asked.tiers
    if not tiers and asked.changed is None:
        tiers = list(TIERS)

    if unknown := set(tiers) - {*TIERS, LIFECYCLE}:
        parser.error(f"no tier: {', '.join(sorted(unknown))}")

    if asked.changed is not None:
        tiers += [tier for tier in areas.tiers_of_change(asked.changed) if tier not in tiers]
        print(
            f"make test: this change is tested by: {', '.join(tiers) or 'no tier beside core'}",
            flush=True,
        )

    machine = look()
    if left_out(tiers, machine) and all_must_run():
        missed = f"{', '.join(left_out(tiers, machine))}, since {obstacle(machine)}"
        sys.exit(f"error: TRAINYARD_TESTS=all, but these cannot run: {missed}")

    for line in announcement(machine, {use for lane in lanes(tiers) for use in lane.uses}):
        print(f"make test: {line}", flush=True)

    chosen = [lane for lane in lanes(tiers) if lane.name not in left_out(tiers, machine)]
    with tempfile.TemporaryDirectory() as directory:
        together = Together(for_pytest, Path(directory), Supplies(machine), until=asked.until)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, together.end)

        ended = run_all(together, chosen)
        ran = {
            f"{lane.name}: {module}": one
            for lane in chosen
            for module, one in dealing.read(together.dealt(lane)).items()
        }

        late = [
            f"{lane.name}: {module}"
            for lane in chosen
            for module in dealing.left(together.dealt(lane))
        ]

        late += [f"the rest of {lane}" for lane, end in ended.items() if end.is_cut]

    codes = {lane: end.code for lane, end in ended.items()}
    twice = {f"{lane}: {module}" for lane, end in ended.items() for module in end.twice}
    is_flaky = report(twice, ran, late)
    # Look a second time: a lane may have installed what was missing at first.
    print(f"make test: {summary(codes, tiers, look())}")

    return max(TESTS_FAILED if is_flaky else 0, *codes.values(), 0)


def report(twice: Collection[str], ran: Mapping[str, Ran], late: Collection[str]) -> bool:
    """Print each module's time, and modules not reached; say whether one too often ran twice."""
    flaky = history.add(ran, twice)
    for line in history.table(ran, twice):
        print(line)
    for module in flaky:
        print(
            f"{module} ran twice in {history.TOO_OFTEN} of its last {history.LATEST} runs: that "
            "is a failure, too"
        )
    for module in late:
        print(f"no time was left for {module}")
    return bool(flaky)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
