"""A pytest plugin: processes share the modules to run, and record what each module took.

`pytest -p tests.dealing --deal DIRECTORY --dealer NAME`. The process that claims a module first
runs the whole module: its tests may share a cluster, and depend on earlier ones.

`--deal-until TIME`: no process begins a module after TIME.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest


@dataclass
class Ran:
    """A module that ran in one process: its number of tests, seconds, and whether a test failed."""

    tests: int = 0
    seconds: float = 0.0
    failed: bool = False


def left(directory: Path) -> list[str]:
    """Return the modules that no process ran, because `--deal-until` had passed."""
    return sorted(path.read_text() for path in directory.glob("*.late"))


def read(directory: Path, dealer: str = "*") -> dict[str, Ran]:
    """Return the records of one process, or of all processes, in a directory, by module."""
    written = [json.loads(path.read_text()) for path in directory.glob(f"{dealer}.json")]
    return {module: Ran(**ran) for modules in written for module, ran in modules.items()}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of this plugin."""
    parser.addoption(
        "--deal", type=Path, required=True, help="where the processes that share these tests meet"
    )
    parser.addoption(
        "--deal-until", type=float, default=float("inf"), help="in seconds since the epoch"
    )
    parser.addoption("--dealer", required=True, help="the name of this one")


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugin that hands out the modules."""
    options = (config.getoption(f"--{name}") for name in ("deal", "dealer", "deal-until"))
    config.pluginmanager.register(_Dealer(*options))


class _Dealer:
    def __init__(self, directory: Path, name: str, until: float) -> None:
        self._directory = directory
        self._name = name
        self._until = until
        self._ran: dict[str, Ran] = {}

    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run the modules that this process claims, as pytest's own loop does (_pytest/main.py)."""
        if session.testsfailed or session.config.option.collectonly:
            return None  # pytest's own loop reports it

        dealt = self._dealt(session.items)
        item = next(dealt, None)
        while item is not None:
            # pytest tears down the fixtures of `item` that `following` does not use: it has to be
            # known.
            following = next(dealt, None)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
            if session.shouldstop:
                raise session.Interrupted(session.shouldstop)
            item = following

        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add one phase (setup, call or teardown) of a test to the record of its module."""
        ran = self._ran.setdefault(_module(report.nodeid), Ran())
        ran.tests += report.when == "call"
        ran.seconds += report.duration
        ran.failed = ran.failed or report.failed

    def pytest_sessionfinish(self) -> None:
        """Write the record of this process's modules."""
        ran = {module: asdict(one) for module, one in self._ran.items()}
        (self._directory / f"{self._name}.json").write_text(json.dumps(ran))

    def _dealt(self, items: list[pytest.Item]) -> Iterator[pytest.Item]:
        ours: dict[str, bool] = {}
        for item in items:
            module = _module(item.nodeid)
            if module not in ours:
                ours[module] = self._take(module)
            if ours[module]:
                yield item

    def _take(self, module: str) -> bool:
        taken = self._directory / module.replace("/", "_")
        if time.time() > self._until:
            if not taken.exists():
                taken.with_suffix(".late").write_text(module)
            return False
        try:
            taken.touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


def _module(test: str) -> str:
    return test.partition("::")[0]
