from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bad_input import BAD_INPUT, BadInput
from trainyard.main import main

# The command line notices before the loader that there is no such file, and lists the ones there are.
ELSEWHERE = {"no cluster file", "a link to itself"}


@pytest.fixture(autouse=True)
def signals_as_they_were() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=f"{case.file}: {case.title}") for case in BAD_INPUT if case.title not in ELSEWHERE],
)
def test_the_command_line_refuses_it_and_starts_nothing(
    case: BadInput, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    work, state = tmp_path / "work", tmp_path / "state"
    work.mkdir()
    case.write(work)
    before = sorted(work.rglob("*"))
    monkeypatch.chdir(work)
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    monkeypatch.setattr(sys, "argv", ["trainyard", *case.command()])

    with pytest.raises(SystemExit) as left:
        main()

    printed = capfd.readouterr()
    assert (left.value.code, printed.out, printed.err) == (2, "", f"error: {case.message}\n")
    assert sorted(work.rglob("*")) == before
    assert not state.exists()
