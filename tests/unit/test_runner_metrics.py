"""Sources of the watched metric: real event files while they grow, JSON lines, and CSV."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from tensorboardX import SummaryWriter
from trainyard_runner.node.growing import MOST_AT_ONCE
from trainyard_runner.node.metric_reader import MetricReader

WATCH = {"metric": "rewards/time", "source": "auto", "path": None, "uri": None, "step": "step"}


@pytest.fixture
def task(tmp_path: Path) -> Path:
    """Give a task's directory, with its output directory beside it."""
    (tmp_path / "output").mkdir()
    (tmp_path / "job").mkdir()
    return tmp_path / "job"


def reader(task: Path, **watch: Any) -> MetricReader:
    return MetricReader({**WATCH, **watch}, roots=[task, task.parent / "output"], environment={})


def values(read: MetricReader) -> list[tuple[float, float]]:
    return [(step, value) for step, value, _ in read.new()]


def write(directory: Path, *points: tuple[int, float]) -> SummaryWriter:
    writer = SummaryWriter(str(directory))
    for step, value in points:
        writer.add_scalar("rewards/time", value, step)
    return writer


def write_run_json(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    run = {
        "version": 1,
        "library": "rsl_rl",
        "task": "Isaac-Ant-v0",
        "created_at": "2026-11-23T15:00:00",
        "metadata": {},
    }
    (directory / "run.json").write_text(json.dumps(run))


@pytest.mark.parametrize(
    "directory",
    [
        "logs/rl_games/cartpole_direct/2026-11-23_15-00-00/summaries",
        "logs/rsl_rl/ant/2026-11-23_15-00-00",
        "logs/skrl/ant/2026-11-23_15-00-00_ppo_torch",
        "logs/sb3/Isaac-Ant-v0/2026-11-23_15-00-00/PPO_1",
        "../output",
        ".",
    ],
)
def test_event_files_are_found_where_libraries_write_and_read_as_they_grow(
    directory: str, task: Path
) -> None:
    with write(task.parent / "elsewhere", (1, 0.5), (2, 1.5), (300, 2.5)) as writer:
        writer.add_histogram("weights", [1.0, 2.0], 2)
    (source,) = (task.parent / "elsewhere").iterdir()
    content = source.read_bytes()
    read = reader(task)
    (task / directory).mkdir(parents=True, exist_ok=True)
    found = []
    for end in [*range(0, len(content), 7), len(content)]:
        (task / directory / source.name).write_bytes(content[:end])
        found.append(values(read))
    assert [point for points in found for point in points] == [(1, 0.5), (2, 1.5), (300, 2.5)]
    assert sum(map(bool, found)) == 3


def test_values_of_an_earlier_attempt_are_skipped(task: Path) -> None:
    write_run_json(task / "logs/rsl_rl/ant/old")
    write(task / "logs/rsl_rl/ant/old", (1, 0.5)).close()
    (task / "m.csv").write_text("step,rewards/time\n1,0.5\n")
    files, table = reader(task), reader(task, source="file", path="m.csv")
    assert (values(files), values(table)) == ([], [])
    write(task / "logs/rsl_rl/ant/new", (2, 1.5)).close()
    (task / "m.csv").write_text("step,rewards/time\n1,0.5\n2,1.5\n")
    assert (values(files), values(table)) == ([(2, 1.5)], [(2, 1.5)])


def test_run_json_says_which_of_several_runs_it_is(task: Path) -> None:
    read = reader(task)
    write(task / "logs/evaluation", (1, 9.0)).close()
    for name in ("earlier", "new"):
        write_run_json(task / "logs/rsl_rl/ant" / name)
        write(task / "logs/rsl_rl/ant" / name, (1, float(len(name)))).close()
    assert values(read) == [(1, 3.0)]


@pytest.mark.parametrize(
    ("tag", "metric"), [("Episode Reward/mean (s)", "Episode_Reward/mean__s_"), ("a_b", "a b")]
)
def test_isaac_labs_spelling_of_a_tag_is_the_same_name(tag: str, metric: str, task: Path) -> None:
    for asked in (tag, metric):
        read = reader(task, metric=asked, source="stdout")
        read.feed([json.dumps({tag: 1.0}).encode() + b"\n"])
        assert values(read) == [(0, 1.0)]


def test_json_lines_are_found_among_other_output(task: Path) -> None:
    read = reader(task)
    read.feed(
        [
            b'starting\n{"rewards/time": 1, "note": "x"}\n{"rewards/',
            b'time": NaN, "step": 7}\n{not json}\n[1]\n',
        ]
    )
    read.feed(
        [b'{"rewards/time": "high"}\n{"rewards/time": true}\n{"loss": 2.5}\n{"rewards/time": 3}']
    )
    (first, second) = values(read)
    assert (first, second[0], math.isnan(second[1])) == ((0, 1.0), 7, True)
    assert read.names == {"rewards/time", "loss"}


def test_a_file_of_json_lines_or_csv_is_read_as_it_grows(task: Path) -> None:
    lines = reader(task, source="file", path="logs/*/m.jsonl", step="iteration")
    table = reader(
        task, source="file", path="progress.csv", step="time/steps", metric="rollout/reward"
    )
    assert (values(lines), values(table)) == ([], [])
    (task / "logs/a").mkdir(parents=True)
    (task / "logs/a/m.jsonl").write_text(
        '{"iteration": 5, "rewards/time": 0.5}\n{"iteration": 6, "rew'
    )
    (task / "progress.csv").write_text("rollout/reward,time/steps\n,100\n1.5,200\n2.5")
    assert (values(lines), values(table)) == ([(5, 0.5)], [(200, 1.5)])

    with (task / "logs/a/m.jsonl").open("a") as file:
        file.write('ards/time": 1.5}\n')

    # Stable-Baselines3 rewrites the file when there is one more column.
    (task / "progress.csv").write_text(
        "rollout/reward,time/steps,loss\n,100,\n1.5,200,\n2.5,300,0.1\n"
    )
    assert (values(lines), values(table)) == ([(6, 1.5)], [(300, 2.5)])


def test_a_large_table_is_read_in_pieces_without_a_line_that_is_longer(task: Path) -> None:
    read = reader(task, source="file", path="m.csv")
    note = "x" * (MOST_AT_ONCE // 50)
    rows = [f"{step},{step / 2},{note}\n" for step in range(100)]
    too_long = "x" * 3 * MOST_AT_ONCE
    (task / "m.csv").write_text(
        "".join(["step,rewards/time,note\n", *rows[:50], too_long, "\n", *rows[50:]])
    )
    pieces = [values(read)]
    while read.has_more:
        pieces.append(values(read))
    assert max(map(len, pieces)) < 50
    assert [point for piece in pieces for point in piece] == [
        (step, step / 2) for step in range(100)
    ]


def test_a_rewritten_table_continues_after_the_lines_already_read(task: Path) -> None:
    read = reader(task, source="file", path="m.csv")
    (task / "m.csv").write_text("step,rewards/time\n1,0.5\n2,1.5\n")
    assert values(read) == [(1, 0.5), (2, 1.5)]
    (task / "m.csv").write_text("step,rewards/time,loss\n1,0.5,0.1\n2,1.5,0.1\n3,2.5,0.1\n")
    assert values(read) == [(3, 2.5)]
    # One with fewer lines is another story.
    (task / "m.csv").write_text("step,rewards/time\n7,9.5\n")
    assert values(read) == [(7, 9.5)]


def test_names_are_cut_and_so_is_their_number(task: Path) -> None:
    read = reader(task)
    read.feed(
        [
            json.dumps(
                {"n" * 900_000: 1.0, **{str(number): 1.0 for number in range(2000)}}
            ).encode()
            + b"\n"
        ]
    )
    assert values(read) == []
    assert (len(read.names), max(map(len, read.names))) == (1000, 100)


def test_the_values_of_one_place_are_not_read_a_second_time_from_another(task: Path) -> None:
    read = reader(task)
    write(task, (1, 0.5)).close()
    read.feed([b'{"rewards/time": 0.5, "step": 1}\n'])
    assert values(read) == [(1, 0.5)]
    read.feed([b'{"rewards/time": 0.6, "step": 2}\n'])
    assert values(read) == []
