"""The report of a run, from directories of every kind."""

from __future__ import annotations

import json
import math
import re
import struct
import tracemalloc
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tests.recorded_run import BEGAN, RecordedRun, ended, eventful, smooth, started, sweep
from tests.run_events import an_event
from trainyard.results import formats, tables
from trainyard.results import state as states
from trainyard.results.overview import OverviewRow, write_overview
from trainyard.results.report import write_report
from trainyard.results.scalars import read_file
from trainyard.results.state import RunState

# Two strong ones end a script or start an element; the last breaks out of an attribute.
HOSTILE = """</script></pre><script>alert(1)</script><img src=x onerror=alert(2)>"' onmouseover='alert(3)"""


class Page(HTMLParser):
    """A page, parsed: its elements, and its text by section."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._silent = 0
        self.source = path.read_text(encoding="utf-8")
        self.feed(self.source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.text += " "  # neighbouring cells are words of their own
        self._silent += tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self._silent -= tag in ("script", "style")

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.text += data

    @property
    def words(self) -> str:
        return re.sub(r"\s+", " ", self.text)

    @property
    def drawing(self) -> dict[str, Any]:
        return dict(self.data("drawing"))

    def data(self, name: str) -> Any:
        """Return what is in the page for its script."""
        script = re.search(
            rf'<script type="application/json" id="{name}">(.*?)</script>', self.source, re.DOTALL
        )
        assert script
        return json.loads(script[1])

    def with_class(self, name: str) -> list[dict[str, str | None]]:
        return [
            attributes
            for _, attributes in self.elements
            if name in (attributes.get("class") or "").split()
        ]


def report(run: RecordedRun) -> Page:
    return Page(write_report(run.write()))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    return report(eventful(tmp_path_factory.mktemp("eventful")))


def test_the_page_shows_tasks_nodes_outcomes_and_durations(page: Page) -> None:
    for words in (
        "cartpole failed cartpole-20260921-141320-1a2b",
        "1 of 6 tasks failed See the last lines below.",
        "14.0 s duration 4 tasks succeeded 1 task failed 1 task stopped 8 attempts",
        "Cluster local (local) Git revision daacb131c0ff, with changes that were not committed",
        "Versions trainyard 0.1.0, python 3.11.9, ray 2.60.0",
        (
            "Started 2026-09-21 14:13:20 UTC by ops@laptop Command trainyard train.dispatch "
            "jobs/cartpole copy"
        ),
        "Task seed State Node",
        "Exit eval/mean_return Log",
        "seed=1 2 attempts 1 succeeded cpu-0 10.4 s 4.5 s 150.0 MiB 0 4",
        (
            "seed=1, attempt 1 on cpu-1 lost after 5.4 s node cpu-1 died 2 checkpoints, the last "
            "after 4.0 s"
        ),
        (
            "seed=1, attempt 2 on cpu-0 succeeded after 5.0 s continued from the last checkpoint of "
            "attempt 1"
        ),
        "Nodes cpu-0, cpu-1, head CPU AMD EPYC 9654, 8 cores Memory 32.0 GiB System Debian "
        "GNU/Linux 12 "
        "Versions Python 3.11.9, Ray 2.60.0, numpy 2.1.3, gymnasium 1.2.0",
        "transfer cpu-0 passed 412 MB/s to cpu-1 0.20 s",
        "gpus cluster skipped no GPUs declared",
        'command: [python, train.py, --seed, "{seed}"]',
    ):
        assert words in page.words


def test_all_curves_are_in_one_plot_with_their_values_of_the_matrix(page: Page) -> None:
    drawing = page.drawing
    assert drawing["tags"] == ["eval/mean_return", "rollout/return", "train/gradient_norm"]
    assert drawing["telling"] == [0, 1, 2]
    assert (drawing["keys"], drawing["averaged"]) == (["seed"], [])
    series = drawing["series"]
    assert [(curve["name"], curve["values"]) for curve in series] == [
        (f"seed={n}", [f"{n}"]) for n in (0, 1, 2, 4)
    ]
    steps, values, seconds = (drawing["lists"][index] for index in series[0]["curves"]["0"])
    assert steps[:2] == [0, 9000]
    assert len(steps) == len(values) == len(seconds)
    # Curves of one file share their steps.
    assert series[0]["curves"]["1"][0] == series[0]["curves"]["0"][0]


def test_the_timeline_shows_every_attempt_with_a_shape_for_each_kind(page: Page) -> None:
    kinds = sorted((bar["class"] or "").split()[1] for bar in page.with_class("bar"))
    samples = ["failed", "lost", "stopped", "succeeded", "timeout"]
    assert kinds == sorted(["failed", "lost", "stopped", "timeout", *["succeeded"] * 4, *samples])
    marks = {mark["href"] for mark in page.with_class("mark")}
    assert marks == {"#failed", "#lost", "#stopped", "#timeout", "#restored"}


def test_failures_come_first_with_their_logs_and_retried_ones_are_folded(tmp_path: Path) -> None:
    page = report(eventful(tmp_path))
    shown = page.words[page.words.index("What went wrong") : page.words.index("Learning curves")]
    assert shown.startswith(
        "What went wrong 1 task timeout seed=3 attempt 1 on head: longer than 6 s iteration 20 "
        "iteration 40 "
        "the whole log 2 attempts failed and were retried lost seed=1 attempt 1 on cpu-1: node "
        "cpu-1 died"
    )
    assert "ValueError: bad <shape>" in page.text
    folds = [attributes for tag, attributes in page.elements if tag == "details"]
    assert ["open" in fold for fold in folds] == [True, False, False, False, True, True]
    assert any(attributes.get("href") == "logs/seed%3D2.1.log" for _, attributes in page.elements)


def test_small_images_are_inside_the_page_and_other_media_beside_it(tmp_path: Path) -> None:
    run = eventful(tmp_path)
    outputs = run.directory.outputs("seed=0")
    (outputs / "frames").mkdir()

    for name, size in (
        ("frames/2.png", 9),
        ("frames/10.PNG", 9),
        ("large.jpg", 300_000),
        ("replay.mp4", 9),
    ):
        (outputs / name).write_bytes(b"x" * size)

    (outputs / "elsewhere.png").symlink_to("/etc/passwd")
    page = report(run)
    sources = [attributes["src"] for tag, attributes in page.elements if tag in ("img", "video")]

    assert sources == [
        "data:image/png;base64,eHh4eHh4eHh4",
        "data:image/png;base64,eHh4eHh4eHh4",
        "outputs/seed%3D0/large.jpg",
        "outputs/seed%3D0/replay.mp4",
    ]


def test_the_ends_of_the_logs_are_in_the_page_bad_ones_first(tmp_path: Path) -> None:
    run = eventful(tmp_path)
    run.directory.log("seed=0", 1).write_bytes(b"early\n" + b"a line \xff\n" * 40_000)
    logs = report(run).data("log-tails")
    assert [log["name"] for log in logs] == ["seed=2 · attempt 1", "seed=3", "seed=0"]
    long = logs[-1]
    assert long["text"].endswith("a line \ufffd\n")
    assert 190_000 < len(long["text"]) <= 200 * 1024
    assert long["left_out"] + len(long["text"]) == 360_006


@pytest.mark.parametrize(
    ("tags", "first"),
    [
        (["train/loss", "rollout/ep_rew_mean"], "rollout/ep_rew_mean"),
        (["rollout/ep_rew_mean", "eval/mean_reward"], "eval/mean_reward"),
        (["time/fps", "train/loss"], "train/loss"),
        (["b", "a"], "a"),
    ],
)
def test_the_plot_begins_with_the_scalar_that_matters_most(
    tmp_path: Path, tags: list[str], first: str
) -> None:
    run = RecordedRun(tmp_path, "t")
    run.curve("t", *tags, steps=3)
    drawing = report(run).drawing
    assert drawing["tags"][drawing["telling"][0]] == first


def test_an_active_run_is_marked_and_its_attempts_show_their_gpus(tmp_path: Path) -> None:
    run = RecordedRun(tmp_path, "seed=0", "seed=1")
    started(run)
    run.event(
        1.0, "attempt-started", task="seed=0", attempt=1, node="gpu-0", node_id="x", gpus=["0", "3"]
    )
    run.event(2.0, "note", text="seed=0: not brought back")
    run.event(7.5, "checkpoint", task="seed=0", attempt=1, bytes=10, files=1)
    words = report(run).words

    for said in (
        "The run is still active. This is its state at 2026-09-21 14:13:27 UTC.",
        "7.5 s so far",
        "seed=0, attempt 1 on gpu-0, GPU 0, 3 running for 6.5 s",
        "seed=0: not brought back",
    ):
        assert said in words


def test_a_run_of_which_nothing_is_known_yet_has_a_page(tmp_path: Path) -> None:
    run = RecordedRun(tmp_path, git=None, versions={}, user=None, host=None, command=[], job=None)
    for name in ("job.yaml", "cluster.yaml", "events.jsonl"):
        (run.path / name).unlink(missing_ok=True)
    words = Page(write_report(run.path)).words
    assert "smoke test waiting" in words
    for said in (
        "No curves came back.",
        "No task was started.",
        "No attempt has begun.",
        "No smoke test was run.",
        "The resolved files are not in this directory.",
    ):
        assert said in words


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    run = RecordedRun(tmp_path, HOSTILE, job=HOSTILE, user=HOSTILE, command=[HOSTILE])
    run.event(0.0, "run-started")
    run.event(0.1, "note", text=HOSTILE)

    run.event(
        0.2,
        "check",
        name=HOSTILE,
        node=HOSTILE,
        ok=False,
        detail=HOSTILE,
        hint=HOSTILE,
        seconds=1,
        skipped=False,
    )

    run.attempt(
        HOSTILE, HOSTILE, 1.0, 2.0, outcome="failed", reason=HOSTILE, tail=[HOSTILE, "<b>bold</b>"]
    )
    run.curve(HOSTILE, "</script><script>alert(4)</script>")
    ended(run, 4.0, state="failed", exit_code=1, error=HOSTILE)

    for name in ("job.yaml", "cluster.yaml"):
        (run.path / name).write_text(HOSTILE)

    page = report(run)
    scripts = [attributes for tag, attributes in page.elements if tag == "script"]
    data = [{"type": "application/json", "id": name} for name in ("drawing", "log-tails")]
    assert scripts == [*data, {}]
    assert not [
        attributes
        for tag, attributes in page.elements
        if tag in ("img", "b", "iframe") and attributes
    ]

    assert not [
        name for _, attributes in page.elements for name in attributes if name.startswith("on")
    ]
    assert page.text.count(HOSTILE) >= 10


def test_bytes_terminal_codes_and_reversed_text_do_not_reach_the_page(tmp_path: Path) -> None:
    run = RecordedRun(tmp_path, "t")
    tail = [
        "\x1b[31mred\x1b[0m",
        "half \udcff\udc80 bytes",
        "a\x00b",
        "gnp.\u202eexe",
        "\x1b]0;title\x07after",
    ]

    run.event(0.0, "run-started")
    run.event(1.0, "attempt-started", task="t", attempt=1, node="n")
    fields = {
        "task": "t",
        "attempt": 1,
        "node": "n",
        "seconds": 1.0,
        "outcome": "failed",
        "exit_code": 1,
    }

    run.event(2.0, "attempt-ended", **fields, tail=tail)
    text = report(run).text
    assert "red\nhalf \ufffd\ufffd bytes\na\ufffdb\ngnp.\ufffdexe\nafter" in text


def test_ten_thousand_tasks_make_a_small_page_in_little_memory(tmp_path: Path) -> None:
    names = [f"index={index}" for index in range(10_000)]
    run = RecordedRun(tmp_path, *names)
    run.event(0.0, "run-started")

    with run.directory.events.open("w") as file:
        for number, name in enumerate(names):
            common = {"task": name, "attempt": 1, "node": f"cpu-{number % 4}"}
            failed = number % 100 == 99
            end = {
                "seconds": 0.05,
                "outcome": "failed" if failed else "succeeded",
                "exit_code": int(failed),
            }

            tail = {"tail": [f"line {line} of {name}" for line in range(20)]}
            start = {"seq": 3 * number, "time": BEGAN + number / 100, "event": "attempt-started"}
            for event in (
                start | common,
                start | common | end | tail | {"event": "attempt-ended"},
                start
                | {
                    "event": "task-ended",
                    "task": name,
                    "state": "failed" if failed else "succeeded",
                },
            ):
                file.write(json.dumps(event) + "\n")

    tracemalloc.start()
    page = Page(write_report(run.path))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(page.source) < 1_500_000
    assert peak < 100 * 2**20
    assert (
        "What went wrong 100 tasks The first 60 of 100. By reason: 100 × exit code 1" in page.words
    )
    assert "397 of 10,000 tasks: the first ones, and those that failed" in page.words
    assert "cpu-3 300 attempts" in page.words
    assert "8,800 later attempts are not shown." in page.words
    assert "Tasks 10,000" in page.words


def test_a_sweep_has_its_best_command_all_trials_and_the_best_curves(tmp_path: Path) -> None:
    page = report(sweep(tmp_path, kept=True))
    assert (
        "Sweep 31 complete, 5 pruned, 3 failed, 1 running best reward (max) 347.3 trial 19, ± 4.243"
        in page.words
    )
    assert "python train.py --lr 0.0010584785269147755 --optimizer adam --seed 0" in page.words
    assert "Which parameter matters momentum" in page.words
    assert "PED-ANOVA of 31 complete trials" in page.words
    assert "6 pruned 199 4.243 0.0323 sgd 0.7309 3 4.1 s below the median at step 7" in page.words
    drawn = page.data("sweep-drawing")

    assert [(axis["name"], axis.get("log"), axis.get("labels")) for axis in drawn["axes"]] == [
        ("lr", True, None),
        ("optimizer", None, ["adam", "sgd"]),
        ("momentum", False, None),
        ("layers", False, None),
    ]

    number, state, value, places = drawn["trials"][10]
    assert (number, state, value, places[1:]) == (
        10,
        "failed",
        None,
        [1, pytest.approx(0.1123, abs=1e-4), 2],
    )

    assert drawn["trials"][19][3][2] is None  # adam has no momentum
    curves = page.drawing
    assert (curves["keys"], curves["averaged"], curves["seen_first"]) == (
        ["trial", "repeat"],
        ["repeat"],
        10,
    )

    assert curves["tags"] == ["reward"]
    # The best one first, both repeats.
    assert [series["values"] for series in curves["series"][:2]] == [["19", "0"], ["19", "1"]]


def test_a_sweep_counts_trials_and_its_table_begins_with_the_best(tmp_path: Path) -> None:
    page = report(sweep(tmp_path))
    assert "Sweep report cartpole" in page.words
    assert "31 trials complete 5 trials pruned 3 trials failed 1 trial running" in page.words
    numbers = re.findall(r'<tbody data-trial="(\d+)">', page.source)
    assert numbers[0] == "19" and sorted(map(int, numbers)) == list(range(40))


def test_the_command_can_be_pasted_into_a_shell(tmp_path: Path) -> None:
    words = ["/home/me/.venv/bin/trainyard", "train.dispatch", "jobs/a b", "--set", "env={A: '1'}"]
    run = RecordedRun(tmp_path, "task", command=words)
    started(run)
    ended(run, 2.0)
    assert (
        """trainyard train.dispatch 'jobs/a b' --set 'env={A: '"'"'1'"'"'}'""" in report(run).words
    )


def test_a_run_that_ended_well_has_retries_and_nothing_that_went_wrong(tmp_path: Path) -> None:
    run = RecordedRun(tmp_path, "task")
    started(run)
    run.attempt("task", "head", 1.0, 1.0, outcome="failed", reason="exit code 1")
    run.attempt("task", "head", 2.0, 1.0, number=2)
    run.event(3.0, "task-ended", task="task", state="succeeded", attempts=2)
    ended(run, 4.0)
    words = report(run).words
    assert "Retries 1 attempt" in words and "What went wrong" not in words


@pytest.mark.parametrize(
    ("seconds", "labels"),
    [
        (26.1, ["0", "5 s", "10 s", "15 s", "20 s", "25 s"]),
        (0.9, ["0", "0.2 s", "0.4 s", "0.6 s", "0.8 s"]),
        (3 * 3600.0, ["0", "30 min", "1 h", "1 h 30 min", "2 h", "2 h 30 min", "3 h"]),
        (6 * 86_400.0, ["0", "1 d", "2 d", "3 d", "4 d", "5 d", "6 d"]),
        (20 * 86_400.0, ["0", "4 d", "8 d", "12 d", "16 d", "20 d"]),
    ],
)
def test_the_timeline_counts_as_people_do(seconds: float, labels: list[str]) -> None:
    state = RunState(run="r", cluster="c", job=None, tasks=["task"])
    about = {
        "task": "task",
        "attempt": 1,
        "node": "head",
        "seconds": seconds,
        "outcome": "succeeded",
    }
    state.apply(an_event("attempt-started", time=1000.0, **about))
    state.apply(an_event("attempt-ended", time=1000.0 + seconds, **about))
    assert [label for _, label in tables.timeline(state)["ticks"]] == labels


def test_one_page_leads_to_all_runs(tmp_path: Path) -> None:
    good, swept = smooth(tmp_path), sweep(tmp_path)
    write_report(good.write())
    rows = []

    for each in (swept, good):
        each.write()
        rows.append(
            OverviewRow(
                each.directory, each.directory.record(), states.load(each.directory), "succeeded"
            )
        )

    path = write_overview(rows, tmp_path)
    page = Page(path)
    assert path == tmp_path / "index.html"
    assert '<a href="cartpole-20260921-141320-1a2b/report.html">' in page.source
    assert "cartpole-20260921-141320-5eeb cartpole" in page.words
    assert "347.3 local" in page.words


@pytest.mark.parametrize("count", [1, 12])
def test_a_sweep_that_begins_and_one_without_its_study_are_good_pages(
    tmp_path: Path, count: int
) -> None:
    page = report(sweep(tmp_path, trials=count, kept=count == 12))
    assert ("No trial is complete yet." in page.words) == (count == 1)
    missing = "This needs study.journal, which was not fetched from the cluster."
    assert (
        missing if count == 1 else "This needs 10 complete trials; so far there are 9."
    ) in page.words


def test_values_of_a_choice_can_be_any_text(tmp_path: Path) -> None:
    run = sweep(tmp_path, adam=HOSTILE)
    (run.path / "study.journal").write_text("no journal\n")
    page = report(run)
    assert page.data("sweep-drawing")["axes"][1]["labels"] == [HOSTILE, "sgd"]
    assert not any(
        "onerror" in attributes or "onmouseover" in attributes for _, attributes in page.elements
    )
    assert len([tag for tag, _ in page.elements if tag == "script"]) == 4
    assert "Optuna cannot read study.journal" in page.words


def test_plotted_numbers_stay_bounded_with_extreme_metric_values(tmp_path: Path) -> None:
    run = RecordedRun(tmp_path, "a")
    run.attempt("a", "head", 1.0, 2.0)
    most = 1.7976931348623157e308

    points = [
        [0, most, 1.0],
        [1, -most, 2.0],
        [most, 1.0, most],
        [math.inf, 1.0, 3.0],
        [2, math.nan, -most],
    ]

    run.event(2.0, "metric", task="a", attempt=1, values=points)
    page = report(run)
    numbers = [number for numbers in page.drawing["lists"] for number in numbers]
    assert numbers and max(map(abs, numbers)) == 1e150


def test_a_time_that_is_no_number_is_no_point(tmp_path: Path) -> None:
    path = tmp_path / "events.out.tfevents.1.h"
    event = b"\x09" + struct.pack("<d", math.nan) + b"\x2a\x0a\x0a\x08\x0a\x01x\x15\x00\x00\x80\x3f"
    path.write_bytes(len(event).to_bytes(8, "little") + bytes(4) + event + bytes(4))
    assert list(read_file(path)) == []


def test_a_directory_in_the_place_of_a_log_is_no_log(tmp_path: Path) -> None:
    run = RecordedRun(tmp_path, "a")
    run.attempt("a", "head", 1.0, 2.0)
    run.write()
    run.directory.log("a", 1).unlink()
    run.directory.log("a", 1).mkdir()
    assert Page(write_report(run.path)).data("log-tails") == []


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.12345, "0.1235"),
        (12_345.6, "12,346"),
        (1e308, "1e+308"),
        (-1.5e15, "-1.5e+15"),
        (None, "–"),
    ],
)
def test_a_number_has_as_many_digits_as_say_something(value: float | None, shown: str) -> None:
    assert formats.number(value) == shown
