"""Nothing that a cluster says is trusted: neither size, time, shape, names nor characters."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from invoke.program import Program

from tests.real.hostile import HONEST, RUN, Dashboard, dashboard
from trainyard.results import store
from trainyard.tasks import namespace
from trainyard.tasks.executor import TrainyardExecutor

pytestmark = pytest.mark.core

ESCAPE = "\x1b]0;title\x07\x1b[2J\x9b1A\u202e"
Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Give the command line in this process: starting another one would take longer than a test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TRAINYARD_CLUSTER", "lab")
    job = tmp_path / "jobs" / "job"
    job.mkdir(parents=True)
    (job / "job.yaml").write_text("command: ['true']\n")

    def run(server: Dashboard, *arguments: str) -> tuple[int, str]:
        cluster = (
            f"name: lab\nbackend: existing\nauth: none\nexisting: {{address: '{server.address}'}}\n"
        )
        (tmp_path / "clusters").mkdir(exist_ok=True)
        (tmp_path / "clusters" / "lab.yaml").write_text(cluster)

        if not (tmp_path / "results" / RUN).exists():
            record = {
                "run": RUN,
                "cluster": "lab",
                "job": "job",
                "tasks": ["a"],
                "started": "2026-11-22",
            }
            store.create(tmp_path / "results", record, cluster=cluster, job="")

        monkeypatch.setattr("sys.argv", ["trainyard", *arguments])
        code = 0
        try:
            # Not main(): it would let SIGPIPE end this process, which serves the dashboard too.
            Program(name="trainyard", namespace=namespace, executor_class=TrainyardExecutor).run()
        except SystemExit as ended:
            code = int(ended.code or 0)

        said = capsys.readouterr()
        return code, said.out + said.err

    return run


def events(*events: dict[str, Any]) -> dict[str, object]:
    """Return the answers of a cluster whose run has these events."""
    lines = [
        json.dumps({"seq": number, "time": 1.0, **event}) + "\n"
        for number, event in enumerate(events)
    ]
    return HONEST | {"/api/v0/logs/file": "".join(lines)}


STARTED = {"event": "run-started", "node_id": "n1"}
COMMANDS = [
    "cluster.status",
    "cluster.up",
    "cluster.logs",
    "smoke.run",
    "train.dispatch job",
    "train.logs",
    "train.stop",
]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("body", ["<html>\n", '{"submission_id": 5, "ray_version": 5}\n'])
def test_a_server_that_is_not_rays_dashboard_is_reported(run: Run, command: str, body: str) -> None:
    with dashboard({"/": body}) as server:
        code, said = run(server, *command.split())
    assert (code, f"the server at {server.address} is not Ray's dashboard" in said) == (
        6,
        True,
    ), said


@pytest.mark.parametrize(
    "body",
    [
        "",
        "5",
        "[" * 100_000,
        '{"data": {"result": {"result": [{"node_id": "n", "resources_total": {"CPU": NaN}}]}}}',
    ],
)
def test_a_malformed_answer_is_an_error_of_the_cluster(run: Run, body: str) -> None:
    with dashboard({"/": body}) as server:
        assert run(server, "cluster.status")[0] == 6


@pytest.mark.parametrize("command", ["cluster.status", "train.dispatch job", "train.logs"])
def test_an_answer_without_an_end_is_left(run: Run, command: str) -> None:
    with dashboard({"/": "x"}, endless="/") as server:
        code, _ = run(server, *command.split())
    assert (code, server.sent < 200_000_000) == (6, True)


@pytest.mark.parametrize(
    "event",
    [
        {"event": "output", "task": "a", "attempt": "/../../../EVIL", "at": 0, "text": "x"},
        {"event": "output", "task": "a", "attempt": 1, "at": 0, "text": "\ud800"},
        {"event": "task-ended", "task": ["a"], "state": "failed"},
        {
            "event": "attempt-ended",
            "task": "a",
            "attempt": 1,
            "outcome": "failed",
            "output": 5,
        },
        {"event": "run-ended", "state": "succeeded", "exit": 0, "seconds": float("inf")},
        {"event": 5},
        {"seq": "x", "event": "note"},
    ],
)
def test_a_malformed_stream_is_an_error_of_the_cluster(
    run: Run, tmp_path: Path, event: dict[str, Any]
) -> None:
    before = sorted(tmp_path.parent.rglob("EVIL*"))
    with dashboard(events(STARTED, event)) as server:
        code, said = run(server, "train.logs")
    assert (code, sorted(tmp_path.parent.rglob("EVIL*"))) == (6, before), said


@pytest.mark.parametrize("line", ["{}\n", "x\n", '{"seq": 0}\n' * 2, "x"])
def test_an_invalid_event_stream_ends_with_an_error(run: Run, line: str) -> None:
    with dashboard(
        HONEST | {"/api/v0/logs/file": line}, endless="/api/v0/logs" if line == "x" else "-"
    ) as server:
        code, said = run(server, "train.logs")
    assert (code, "stream" in said) == (6, True), said


def test_names_lead_nowhere_and_escapes_are_shown(run: Run, tmp_path: Path) -> None:
    name = f"../..{ESCAPE}"
    attempt = {"task": name, "attempt": 1, "node": ESCAPE}
    stream = events(
        STARTED,
        {"event": "note", "text": ESCAPE},
        {"event": "attempt-started", **attempt},
        {"event": "output", "at": 0, "text": f"{ESCAPE[:-1]}\n", **attempt},
        {
            "event": "attempt-ended",
            "outcome": "failed",
            "reason": ESCAPE,
            "tail": [ESCAPE[:-1]],
            **attempt,
        },
        {"event": "task-ended", "task": name, "state": "failed"},
        {"event": "attempt-started", "task": "..", "attempt": 1},
        {"event": "output", "task": "..", "attempt": 1, "at": 0, "text": "x\n"},
        {
            "event": "run-ended",
            "state": "failed",
            "exit": 1,
            "seconds": 1.0,
            "error": ESCAPE,
            "hint": ESCAPE,
        },
    )
    with dashboard(stream) as server:
        followed = run(server, "train.logs")
        told = [
            run(server, command)[1] for command in ("train.status", "train.list", "train.report")
        ]
        as_json = run(server, "train.status", "--json")[1]

    assert followed[0] == 1
    assert "\\u001b[2J" in followed[1]

    for said in (followed[1], *told, as_json):
        assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(said)

    assert json.loads(as_json)["tasks"][1]["name"] == name
    assert {path.parent for path in tmp_path.rglob("*.log")} == {
        tmp_path / "results" / RUN / "logs"
    }
