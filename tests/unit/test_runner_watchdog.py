"""The moment when an attempt is ended for its metric; the nodes that a task is kept from."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from trainyard_runner.head.placing import options
from trainyard_runner.head.suspects import Suspects
from trainyard_runner.node.watchdog import MetricWatch, Rules
from trainyard_runner.wire.nodes import Node
from trainyard_runner.wire.plan import Task

WATCH = {
    "metric": "reward",
    "first": 600.0,
    "silence": 300.0,
    "constant": None,
    "source": "stdout",
    "step": "step",
}


def judged(*values: tuple[float, float], at: float, **watch: Any) -> tuple[str, str] | None:
    """Return the verdict at a time; each value is (time, value), its step is its index."""
    rules = Rules({**WATCH, **watch})
    for step, (came, value) in enumerate(values):
        rules.take([[float(step), value, 0.0]], at=came)
    return rules.broken(at=at)


@pytest.mark.parametrize(
    ("values", "at", "watch", "verdict"),
    [
        ([], 599.0, {}, None),
        ([], 600.0, {}, ("first", "no first value of reward within 10 minutes")),
        ([(500.0, 1.0)], 799.0, {}, None),
        (
            [(500.0, 1.5)],
            800.0,
            {},
            ("silence", "no value of reward for 5 minutes; before, it was 1.5 at step 0"),
        ),
        (
            [(1.0, 2.0), (2.0, math.nan)],
            2.0,
            {},
            ("nan", "reward became nan at step 1; before, it was 2 at step 0"),
        ),
        (
            [(1.0, 2.0), (1.0, math.nan), (1.0, 5.0), (1.0, math.inf)],
            1.0,
            {},
            ("nan", "reward became nan at step 1; before, it was 2 at step 0"),
        ),
        ([(1.0, -math.inf)], 1.0, {}, ("nan", "reward became -inf at step 0")),
        ([(t, 500.0) for t in range(0, 9000, 100)], 9000.0, {}, None),
        ([(t, 500.0) for t in range(0, 100, 10)], 95.0, {"constant": 100.0}, None),
        (
            [(t, 500.0) for t in range(0, 101, 10)],
            100.0,
            {"constant": 100.0},
            ("constant", "reward has been 500 for 100 s"),
        ),
        ([(t, t // 90) for t in range(0, 180, 10)], 179.0, {"constant": 100.0}, None),
        # One value says nothing yet of whether it moves.
        ([(0.0, 500.0)], 250.0, {"constant": 100.0}, None),
    ],
)
def test_an_attempt_is_ended_by_its_rules(
    values: list[tuple[float, float]],
    at: float,
    watch: dict[str, Any],
    verdict: tuple[str, str] | None,
) -> None:
    assert judged(*values, at=at, **watch) == verdict


def test_failed_readings_do_not_count_as_silence() -> None:
    rules = Rules(WATCH)
    rules.hold(at=550.0)
    assert rules.broken(at=600.0) is not None
    rules.take([[0.0, 1.0, 0.0]], at=590.0)
    for at in range(600, 2000, 100):
        rules.hold(at=float(at))
    assert rules.broken(at=2199.0) is None
    assert rules.broken(at=2200.0) is not None


def watched(tmp_path: Path, **watch: Any) -> MetricWatch:
    return MetricWatch(
        {**WATCH, **watch}, roots=[tmp_path], environment={"TRAINYARD_ATTEMPT_ID": "run:t:1"}
    )


def test_last_values_are_read_at_the_end_without_ending_a_silent_task(tmp_path: Path) -> None:
    watch = watched(tmp_path, silence=0.0, first=0.0)
    watch.feed([b'{"reward": 1, "step": 3}\n{"reward": 2, "step": 4}\n'])
    ((kind, values),) = list(watch.last())
    assert (kind, [value[:2] for value in values]) == ("metric", [[3.0, 1.0], [4.0, 2.0]])
    assert (watch.broken, watch.missing()) == (None, None)


def test_a_last_value_that_is_no_number_breaks_the_rule(tmp_path: Path) -> None:
    watch = watched(tmp_path)
    watch.feed([b'{"reward": NaN}\n'])
    assert (list(watch.last()), watch.broken) == ([], ("nan", "reward became nan at step 0"))


@pytest.mark.parametrize(
    ("printed", "missing"),
    [
        (b"", "no value of reward; it wrote no values at all"),
        (b'{"rewards": 1, "loss": 2}\n', "no value of reward; it wrote: rewards, loss"),
    ],
)
def test_a_metric_that_never_appears_names_those_that_did(
    printed: bytes, missing: str, tmp_path: Path
) -> None:
    watch = watched(tmp_path)
    watch.feed([printed])
    assert (list(watch.last()), watch.missing()) == ([], missing)


def test_a_metric_file_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    watch = watched(tmp_path, source="file", path="m.jsonl")
    (tmp_path / "m.jsonl").symlink_to("/proc/self/mem")
    list(watch.last())
    assert str(watch.missing()).startswith("no value of reward; it could not be read: OSError: ")


A, B, C = (letter * 56 for letter in "abc")
GPU = [Node(node_id, node_id[0], "gpu", "127.0.0.1", {"CPU": 1.0}) for node_id in (A, B, C)]


def task(name: str, **more: Any) -> Task:
    return Task(index=0, name=name, command=("true",), env={}, **more)


def test_a_task_goes_elsewhere_and_a_node_that_ended_two_gets_no_more() -> None:
    suspects = Suspects()
    assert suspects.blame("t", A) == suspects.blame("t", A) == []
    assert suspects.avoided(task("t"), GPU) == {A}
    assert suspects.avoided(task("u"), GPU) == frozenset()
    assert suspects.blame("u", A) == ["t", "u"]
    assert suspects.blame("v", A) == []
    assert suspects.avoided(task("w"), GPU) == {A}
    suspects.blame("w", B)
    assert suspects.avoided(task("w"), GPU) == {A, B}
    suspects.blame("w", C)
    # Wherever it was ended before: everything is better than the node that ended two.
    assert suspects.avoided(task("w"), GPU) == {A}


def test_no_task_waits_for_a_node_that_does_not_fit_it() -> None:
    suspects = Suspects()
    suspects.blame("t", A)
    suspects.blame("u", A)
    assert suspects.avoided(task("w"), GPU[:1]) == frozenset()
    assert suspects.avoided(task("w", node_name="a"), GPU) == frozenset()
    assert suspects.avoided(task("w", node_group="cpu"), GPU) == frozenset()


def test_ray_is_asked_for_another_node() -> None:
    asked = options(task("t", node_group="gpu"), GPU, has_selectors=True, avoided=frozenset({B, A}))
    assert asked["label_selector"] == {
        "ray.io/node-group": "gpu",
        "ray.io/node-id": f"!in({A},{B})",
    }
    old = options(task("t"), GPU, has_selectors=False, avoided=frozenset({B, A}))[
        "scheduling_strategy"
    ]
    assert (old.node_id, old.soft) == (C, True)
    assert "label_selector" not in options(task("t"), GPU, has_selectors=True)
