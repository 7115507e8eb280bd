"""Errors become messages and exit codes in one place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from invoke.collection import Collection
from invoke.context import Context
from invoke.program import Program
from invoke.tasks import task

from trainyard import errors
from trainyard.tasks import namespace
from trainyard.tasks.executor import TrainyardExecutor


def run(body: Callable[[], None], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    @task
    def thing(_c: Context) -> None:
        body()

    program = Program(
        namespace=Collection(thing), executor_class=TrainyardExecutor, name="t", version="0"
    )
    with pytest.raises(SystemExit) as caught:
        program.run(["t", "thing"])
    return int(caught.value.code or 0), capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.JobFailedError, 1),
        (errors.RequestError, 2),
        (errors.PrerequisiteError, 3),
        (errors.NotReadyError, 4),
        (errors.SmokeError, 5),
        (errors.OutsideError, 6),
        (errors.LeftoverError, 7),
        (errors.InterruptedRunError, 130),
    ],
)
def test_every_kind_of_error_has_its_own_exit_code(
    kind: type[errors.TrainyardError], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def body() -> None:
        raise kind("it broke", where="here", hint="Mend it.")

    assert run(body, capsys) == (code, "error: it broke\n  at here\n  -> Mend it.\n")


@pytest.mark.parametrize(
    ("error", "code", "first"),
    [
        (
            ZeroDivisionError("by zero"),
            70,
            "error: a bug in trainyard: ZeroDivisionError: by zero\n",
        ),
        (KeyboardInterrupt(), 130, "error: interrupted\n"),
    ],
)
def test_a_bug_exits_70_and_ctrl_c_130_without_a_traceback(
    error: BaseException, code: int, first: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def body() -> None:
        raise error

    exit_code, printed = run(body, capsys)
    assert (exit_code, printed.startswith(first), "Traceback" in printed) == (code, True, False)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        # Not taken for Invoke's own configuration file.
        (
            ["-f", "lab", "cluster.status"],
            "-f lab comes before the task\n  -> Put it after: trainyard TASK -f lab",
        ),
        (
            ["cluster.status", "--bogus"],
            "cluster.status has no flag --bogus\n  -> trainyard --help cluster.status",
        ),
    ],
)
def test_wrong_words_exit_2_and_start_nothing(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    program = Program(namespace=namespace, executor_class=TrainyardExecutor, name="t", version="0")
    with pytest.raises(SystemExit) as caught:
        program.run(["t", *words])
    assert (caught.value.code, capsys.readouterr().err) == (2, f"error: {message}\n")


def test_a_bug_says_where_to_report_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def body() -> None:
        raise ZeroDivisionError("by zero")

    installation = tmp_path / "trainyard_ray-0.1.0.dist-info"
    installation.mkdir()
    (installation / "METADATA").write_text("Name: trainyard-ray\nVersion: 0.1.0\n")
    (installation / "direct_url.json").write_text('{"url": "https://example.com/t.whl"}')
    monkeypatch.syspath_prepend(tmp_path)
    report = "Report the command's output with --debug to your source of Trainyard"
    first = "error: a bug in trainyard: ZeroDivisionError: by zero"
    assert run(body, capsys) == (70, f"{first}\n  -> {report} (https://example.com/t.whl).\n")
    (installation / "direct_url.json").unlink()
    assert run(body, capsys) == (70, f"{first}\n  -> {report}.\n")
