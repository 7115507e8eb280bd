"""A plugin of pytest: processes deal modules among themselves, and write down what each module
took.

`pytest -p tests.dealing --deal DIRECTORY --dealer NAME`. Each module runs in the process that asks
for it first, as a whole: its tests may share a cluster, and depend on the ones before.
`--deal-until TIME` deals none after that.
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
    """A module that ran in one process: its number of tests, seconds, and whether one failed."""

    tests: int = 0
    seconds: float = 0.0
    failed: bool = False


def left(directory: Path) -> list[str]:
    """Return the modules that no process took, since there was no time left."""
    return sorted(path.read_text() for path in directory.glob("*.late"))


def read(directory: Path, dealer: str = "*") -> dict[str, Ran]:
    """Return the records of one process, or all, that dealt modules in a directory, by module."""
    written = [json.loads(path.read_text()) for path in directory.glob(f"{dealer}.json")]
    return {module: Ran(**ran) for modules in written for module, ran in modules.items()}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    parser.addoption(
        "--deal", type=Path, required=True, help="where the processes that share these tests meet"
    )
    parser.addoption(
        "--deal-until", type=float, default=float("inf"), help="in seconds since the epoch"
    )
    parser.addoption("--dealer", required=True, help="the name of this one")


def pytest_configure(config: pytest.Config) -> None:
    """Let this process take part."""
    options = (config.getoption(f"--{name}") for name in ("deal", "dealer", "deal-until"))
    config.pluginmanager.register(_Dealer(*options))


class _Dealer:
    def __init__(self, directory: Path, name: str, until: float) -> None:
        self._directory = directory
        self._name = name
        self._until = until
        self._ran: dict[str, Ran] = {}

    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run the tests of free modules, as pytest's own loop does (_pytest/main.py)."""
        if session.testsfailed or session.config.option.collectonly:
            return None  # pytest's own says it

        dealt = self._dealt(session.items)
        item = next(dealt, None)
        while item is not None:
            # Fixtures that the next test does not use any more are torn down after this one.
            following = next(dealt, None)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
            if session.shouldstop:
                raise session.Interrupted(session.shouldstop)
            item = following

        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a phase of a test."""
        ran = self._ran.setdefault(_module(report.nodeid), Ran())
        ran.tests += report.when == "call"
        ran.seconds += report.duration
        ran.failed = ran.failed or report.failed

    def pytest_sessionfinish(self) -> None:
        """Write down what ran here."""
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
