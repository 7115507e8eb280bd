"""Shared by the real tests: a command line with its own state directory, and leftover checks."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.real import forked
from trainyard.seams import processes

Done = subprocess.CompletedProcess[str]

# Ray's time limits for the start of a node are fixed: with 40 processes on 2 CPUs, three tries are
# sometimes too few.
TOO_BUSY = "this machine is too busy for Ray's own time limits"
AGAIN = 3

HEAD_AND_TWO_WORKERS = """
name: {name}
backend: local
head: {{cpus: 2, memory: 1GiB}}
workers:
  - {{name: gpu, count: 2, cpus: 2, memory: 1GiB, gpus: 2}}
local: {{simulated_gpus: true}}
"""

HEAD_AND_WORKER = """
name: {name}
backend: local
head: {{cpus: 1, memory: 1GiB}}
workers:
  - {{name: cpu, count: 1, cpus: 1, memory: 1GiB}}
"""


@dataclass(frozen=True)
class Yard:
    """A directory with its own clusters/, results/ and state; `run` is the command line there."""

    home: Path
    cluster: str = "yard"
    environ: dict[str, str] = field(default_factory=dict)
    # Programs that run each command as another user.
    prefix: tuple[str, ...] = ()

    @property
    def state(self) -> Path:
        return self.home / "state" / "trainyard" / "clusters" / self.cluster

    @property
    def results(self) -> Path:
        return self.home / "results"

    @property
    def temp(self) -> Path:
        """Return the cluster's directory in /tmp."""
        from trainyard.backends.local.naming import ClusterFiles

        return ClusterFiles(self.state).temp

    def write_cluster(self, text: str, *, name: str | None = None) -> Path:
        """Write clusters/NAME.yaml; `{name}` in the text is the cluster's name."""
        name = name or self.cluster
        path = self.home / "clusters" / f"{name}.yaml"
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text.format(name=name))
        return path

    def env(self) -> dict[str, str]:
        """Return a command's environment: this process's, without variables of other clusters."""
        kept = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("RAY_", "TRAINYARD_"))
        }
        here = {"XDG_STATE_HOME": str(self.home / "state"), "TRAINYARD_CLUSTER": self.cluster}
        return {**kept, **here, **self.environ}

    def command(self, *arguments: str) -> list[str]:
        """Return the command line for `invoke ARGUMENTS`, as the installed console command."""
        return [*self.prefix, str(Path(sys.executable).with_name("trainyard")), *arguments]

    def run(self, *arguments: str, expect: int | None = 0, seconds: float = 240.0) -> Done:
        """Run a command; fail the test with its output unless it exits as expected (None: any).

        A command that was expected to succeed, and says that the machine is too busy, is repeated.
        """
        done = self._done(self.command(*arguments), seconds)
        for _ in range(AGAIN):
            if expect != 0 or TOO_BUSY not in done.stderr:
                break
            done = self._done(self.command(*arguments), seconds)
        if expect is not None and done.returncode != expect:
            raise AssertionError(
                f"{' '.join(arguments)} exited {done.returncode}, not "
                f"{expect}\n{done.stdout}\n{done.stderr}"
            )
        return done

    @contextmanager
    def up(self, *flags: str) -> Iterator[Done]:
        """Make the cluster; remove it afterwards with these flags, even if `cluster.up` fails."""
        try:
            yield self.run("cluster.up")
        finally:
            self.run("cluster.down", "--end-runs", *flags)

    def remove_all(self) -> None:
        """Remove every cluster that has a file here; the test fails if one cannot be removed."""
        for file in sorted((self.home / "clusters").glob("*.yaml")):
            self.run("cluster.down", "-f", str(file), "--end-runs")

    def _done(self, command: list[str], seconds: float) -> Done:
        if not self.prefix:
            return forked.run(command, directory=self.home, environ=self.env(), seconds=seconds)
        return subprocess.run(
            command,
            cwd=self.home,
            env=self.env(),
            capture_output=True,
            text=True,
            timeout=seconds,
            stdin=subprocess.DEVNULL,
        )

    def start(self, *arguments: str, as_leader: bool = False) -> subprocess.Popen[str]:
        """Start a command, do not wait; `as_leader`: in its own process group, as on a terminal."""
        return subprocess.Popen(
            self.command(*arguments),
            cwd=self.home,
            env=self.env(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            stdin=subprocess.DEVNULL,
            start_new_session=as_leader,
        )

    def json(self, *arguments: str, expect: int | None = 0, seconds: float = 240.0) -> Any:
        """Return the document that a command prints with --json."""
        return json.loads(self.run(*arguments, "--json", expect=expect, seconds=seconds).stdout)

    def states(self) -> dict[str, str]:
        return {node["name"]: node["state"] for node in self.json("cluster.status")["nodes"]}

    def address(self) -> str:
        return str(self.json("cluster.status")["address"])

    def token(self) -> str:
        return (self.state / "token").read_text().strip()

    def keeper(self, node: str) -> processes.ProcessId:
        record = json.loads((self.state / "nodes" / f"{node}.json").read_text())
        return processes.ProcessId(**record["process"])

    def processes(self) -> list[psutil.Process]:
        """Return the cluster's running processes, with their names in `info`.

        A process that ended since can no longer be asked for its name.
        """
        from trainyard.backends.local import node_processes
        from trainyard.backends.local.naming import ClusterFiles

        pids = {one.pid for one in node_processes.of_cluster(ClusterFiles(self.state))}
        return [process for process in psutil.process_iter(["name"]) if process.pid in pids]

    def raylet(self, node: str) -> psutil.Process:
        keeper = psutil.Process(self.keeper(node).pid)
        return next(child for child in keeper.children(recursive=True) if child.name() == "raylet")

    def leftovers(self) -> list[str]:
        """Return what exists of the cluster: processes, directories."""
        paths = [str(path) for path in (self.state, self.temp) if path.exists()]
        return [*paths, *(f"{one.pid} {one.info['name']}" for one in self.processes())]


def while_up(
    yard: Yard, came: Callable[[], bool], act: Callable[[subprocess.Popen[str]], None]
) -> tuple[Done, bool]:
    """Act once a moment of `cluster.up` comes; return how it ended, and whether that came."""
    up = yard.start("cluster.up", as_leader=True)
    give_up = time.monotonic() + 200
    asked = time.monotonic()
    while not (has_come := came()) and up.poll() is None and time.monotonic() < give_up:
        # As in `wait_until`: the question must not use more CPU time than what it waits for.
        time.sleep(max(0.05, time.monotonic() - asked))
        asked = time.monotonic()
    has_come = has_come and up.poll() is None
    if has_come:
        act(up)
    output, _ = up.communicate(timeout=300)
    return Done(up.args, up.returncode, output), has_come


def assert_one_error(stderr: str, *parts: str) -> None:
    """Assert that there is exactly one error, without a traceback, and with these parts."""
    assert len(re.findall("^error: ", stderr, re.MULTILINE)) == 1, stderr
    assert "Traceback" not in stderr, stderr
    for part in parts:
        assert part in stderr, stderr


def wait_until(holds: Callable[[], bool], *, seconds: float, what: str) -> None:
    """Wait for something that happens by itself; fail the test if it does not.

    A question may cost a second of CPU: asking without pauses would keep the awaited event from
    happening.
    """
    give_up = time.monotonic() + seconds
    while True:
        asked = time.monotonic()
        if holds():
            return
        if time.monotonic() > give_up:
            raise AssertionError(f"after {seconds:.0f} s still not: {what}")
        time.sleep(max(0.1, time.monotonic() - asked))
