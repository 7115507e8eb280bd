"""The words of a command line: optional, wrong and misspelt ones, for every task."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest
from invoke.program import Program

from trainyard.errors import RequestError
from trainyard.tasks import namespace
from trainyard.tasks.grammar import candidates, checked, task_to_explain

CONTEXTS = {str(context.name): context for context in namespace.to_contexts()}
CORE = Program().initial_context


def refusal(*given: str) -> str:
    with pytest.raises(RequestError) as caught:
        checked(given, CONTEXTS, CORE)
    return str(caught.value)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("train.logs", "train.logs"),
        ("train.logs run-1", "train.logs --run run-1"),
        ("train.logs --all run-1", "train.logs --all --run run-1"),
        ("train.logs --task a run-1 --all", "train.logs --task a --run run-1 --all"),
        ("train.logs --task=a run-1", "train.logs --task=a --run run-1"),
        ("train.logs --run run-1", "train.logs --run run-1"),
        ("train.logs --no-follow run-1 --dry", "train.logs --no-follow --run run-1 --dry"),
        ("train.status run-1 train.logs run-2", "train.status --run run-1 train.logs --run run-2"),
        ("train.status train.logs", "train.status train.logs"),
        ("train dispatch jobs/a -f lab", "train.dispatch jobs/a -f lab"),
        ("cluster up -f lab train dispatch train", "cluster.up -f lab train.dispatch train"),
        ("image.build -f lab", "image.build -f lab"),
        ("image.build -f lab schola --base x", "image.build -f lab --image schola --base x"),
        ("image.push schola -flab --json", "image.push --image schola -f lab --json"),
        ("train.dispatch jobs/a -f lab -f b", "train.dispatch jobs/a -f lab -f b"),
        ("cluster.status -jf lab", "cluster.status -j -f lab"),
        ("cluster.logs gpu-0 -f lab", "cluster.logs --node gpu-0 -f lab"),
        (
            "cluster.new lab ops@a -b microk8s b",
            "cluster.new lab --hosts ops@a -b microk8s --hosts b",
        ),
        ("cluster.scale gpu=3 cpu=1 -f lab", "cluster.scale --sizes gpu=3 --sizes cpu=1 -f lab"),
        (
            "train.import x.py --cfg_class A_b --num_samples=3",
            "train.import --source x.py --cfg-class A_b --num-samples=3",
        ),
        (
            "cluster.scale -f lab --sizes gpu=3 cpu=1",
            "cluster.scale -f lab --sizes gpu=3 --sizes cpu=1",
        ),
    ],
)
def test_a_run_without_its_flag_gets_it(given: str, meant: str) -> None:
    assert checked(given.split(), CONTEXTS, CORE) == meant.split()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            "cluster.sttus",
            (
                "no task is called 'cluster.sttus'; did you mean 'cluster.status'?\n  -> trainyard "
                "--list"
            ),
        ),
        (
            "cluster upp",
            "no task is called 'cluster.upp'; did you mean 'cluster.up'?\n  -> trainyard --list",
        ),
        (
            "dispatch jobs/a --set x=$b",
            "no task is called 'dispatch'; did you mean 'train.dispatch'?\n"
            "  -> trainyard train.dispatch jobs/a --set 'x=$b'",
        ),
        (
            "statsu",
            "no task is called 'statsu'; did you mean 'train.status'?\n  -> trainyard train.status",
        ),
        (
            "up -f lab",
            "no task is called 'up'; did you mean 'cluster.up'?\n  -> trainyard cluster.up -f lab",
        ),
        (
            "tune",
            "'tune' is a group of tasks: tune.dispatch, tune.report, tune.resume, tune.status, "
            "tune.stop\n"
            "  -> trainyard --list tune",
        ),
        (
            "cluster.show --jsn",
            (
                "cluster.show has no flag --jsn; did you mean '--json'?\n  -> trainyard --help "
                "cluster.show"
            ),
        ),
        (
            "cluster.up --worker 3",
            "cluster.up has no flag --worker\n  -> trainyard --help cluster.up",
        ),
        (
            "train.logs --no-folow",
            (
                "train.logs has no flag --no-folow; did you mean '--no-follow'?\n  -> trainyard "
                "--help train.logs"
            ),
        ),
        (
            "cluster.status extra",
            (
                "cluster.status takes no 'extra', and no task is called 'extra'\n  -> trainyard "
                "--help cluster.status"
            ),
        ),
        (
            "train.dispatch -f lab",
            "train.dispatch needs JOB_DIR\n  -> trainyard --help train.dispatch",
        ),
        (
            "--json cluster.up",
            "--json comes before the task\n  -> Put it after: trainyard TASK --json",
        ),
        ("cluster.list -f lab", "cluster.list has no flag -f\n  -> trainyard --help cluster.list"),
        ("train.stop --run", "--run needs a value\n  -> trainyard --help train.stop"),
        (
            "train.stop --run=",
            "--run is empty: a variable that is not set?\n  -> trainyard --help train.stop",
        ),
    ],
)
def test_a_wrong_command_line_is_reported_with_a_hint(given: str, message: str) -> None:
    assert refusal(*given.split()) == message


def test_a_letter_means_one_flag_in_all_tasks_and_none_of_invokes_own() -> None:
    meanings = defaultdict(set)
    for context in [*CONTEXTS.values(), CORE]:
        for name, argument in context.args.items():
            for letter in (flag for flag in argument.names if len(flag) == 1):
                meanings[letter].add(name)
    # Before a task, -f is Invoke's own configuration file, and refused.
    assert meanings.pop("f") == {"file", "config"}
    assert {letter: names for letter, names in meanings.items() if len(names) > 1} == {}


def test_help_behind_any_task_explains_it_and_without_one_it_is_invokes() -> None:
    for task in CONTEXTS:
        assert [task_to_explain([task, flag], CONTEXTS) for flag in ("--help", "-h")] == [
            task,
            task,
        ]
    assert task_to_explain(["train", "dispatch", "--help"], CONTEXTS) == "train.dispatch"
    assert task_to_explain(["--help", "train.list"], CONTEXTS) is None
    assert task_to_explain(["train.list"], CONTEXTS) is None


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    sweep = "results/sweep-20260101-000000-ab12/run.json"
    runs = ("results/walk-1/run.json", "results/walk-2/run.json", sweep)
    for name in ("clusters/lab.yaml", "jobs/walk/job.yaml", *runs):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRAINYARD_RESULTS", raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("trainyard train.lo", ["train.logs"]),
        ("trainyard train.logs w", ["walk-1", "walk-2"]),
        ("trainyard train.logs wa", ["walk-1", "walk-2"]),
        ("trainyard train.logs --run", ["sweep", "walk-1", "walk-2", "sweep-20260101-000000-ab12"]),
        ("trainyard tune.status swe", ["sweep", "sweep-20260101-000000-ab12"]),
        ("trainyard train.stop --", ["--run", "--file", "--json"]),
        ("trainyard train.stop --js", ["--json"]),
        ("trainyard train.dispatch w", ["walk"]),
        ("trainyard cluster.up -f la", ["lab"]),
        ("trainyard cluster.up --file = la", ["lab"]),
        ("trainyard image.build sch", ["schola"]),
        ("trainyard cluster.up --set x", []),
        ("trainyard 'unfinished", []),
    ],
)
def test_tasks_flags_and_names_are_completed(here: Path, typed: str, offered: list[str]) -> None:
    assert candidates(typed, CONTEXTS) == offered


@pytest.mark.parametrize("task", ["train.dispatch jobs/a", "cluster.up", "tune.dispatch jobs/a"])
def test_words_behind_two_dashes_are_refused(task: str, capsys: pytest.CaptureFixture[str]) -> None:
    program = Program(namespace=namespace)
    with pytest.raises(SystemExit) as left:
        program.run(["trainyard", *task.split(), "--", "--lr", "0.1"])
    assert left.value.code == 2
    assert (
        "only cluster.import and train.import take words after `--`: --lr 0.1"
        in capsys.readouterr().err
    )


def test_help_is_a_word_too(capsys: pytest.CaptureFixture[str]) -> None:
    program = Program(namespace=namespace)
    program.run(["trainyard", "help"], exit=False)
    assert capsys.readouterr().out.startswith("Usage: trainyard COMMAND")
    program.run(["trainyard", "help", "cluster", "up"], exit=False)
    assert capsys.readouterr().out.startswith("Usage: trainyard cluster.up [FLAGS]")
