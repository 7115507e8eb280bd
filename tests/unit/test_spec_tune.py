"""The section `tune` of a job file: what is wrong with it, all at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainyard.errors import RequestError
from trainyard.spec.expand import expand, sweep
from trainyard.spec.load import load_job

GOOD = """
command: [train.py, "--lr={lr}", "--momentum={momentum}", "{optimizer}"]
env: {SEED: "{repeat}"}
tune:
  metric: reward
  silence: 5m
  samples: 40
  repeats: 3
  space:
    lr: {loguniform: [1e-5, 1e-2]}
    optimizer: {choice: [adam, sgd]}
    momentum: {uniform: [0, 1], step: 0.5, when: {optimizer: [sgd]}}
"""


def problems(directory: Path, text: str) -> list[str]:
    """Return what is wrong with a job file, without the place."""
    (directory / "job.yaml").write_text(text)
    with pytest.raises(RequestError) as error:
        load_job(directory)
    return [f"{problem.where.split()[-1]}: {problem.message}" for problem in error.value.problems]


def test_a_sweep_is_sent_to_the_runner_with_the_task_of_a_configuration(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(GOOD)
    job = load_job(tmp_path)
    about = sweep(job)
    assert about and expand(job) == ()
    assert about["task"]["command"] == job.command
    assert (about["task"]["watch"]["metric"], about["task"]["watch"]["silence"]) == (
        "reward",
        300.0,
    )

    assert (about["metric"], about["mode"], about["search"], about["prune"]) == (
        "reward",
        "max",
        "tpe",
        None,
    )

    assert about["space"]["momentum"] == {
        "kind": "uniform",
        "of": [0.0, 1.0],
        "step": 0.5,
        "when": {"optimizer": ["sgd"]},
        "values": [0.0, 0.5, 1.0],
    }

    assert about["space"]["lr"]["values"] == []


def test_everything_that_is_wrong_with_a_sweep_is_said_at_once(tmp_path: Path) -> None:
    text = """
        command: [train.py, "{lr}", "{a}", "{b}", "{c}", "{d}", "{e}", "{g}", "{h}", "{i}", "{lrr}"]
        matrix: {x: [1]}
        tune:
          metric: reward
          path: metrics.jsonl
          search: cmaes
          space:
            lr: {loguniform: [0, 1]}
            a: {choice: []}
            b: {uniform: [1, 0], when: {optimiser: [sgd]}}
            c: {choice: [1], grid: [1]}
            g: {uniform: [0.5, 0.5]}
            h: {uniform: [0, 1], step: 1.5, when: {lr: [1]}}
            i: {}
            d: {choice: [1, 2], step: 1}
            e: {choice: [0, 1], when: {d: [3]}}
            repeat: {randint: [1, 4], step: 0.5}
    """

    kinds = "must have exactly one of: choice, grid, uniform, loguniform, randint, lograndint"
    step = "is for uniform and (if whole) randint, at most the width of the range"
    only = "a parameter may depend only on parameters of these kinds"
    when = f"is not a choice or grid above it; {only}"

    assert problems(tmp_path, text) == [
        "command.10: names {lrr}, but the space has lr, a, b, c, g, h, i, d, e, repeat, repeat, "
        "got \"{lrr}\"; did you mean 'lr'?",
        "matrix: must not be given together with tune",
        "tune.samples: is missing: how many configurations are tried (or give time)",
        'tune.path: is for source: file or mlflow, not auto, got "metrics.jsonl"',
        "tune.space.lr.loguniform: must begin above 0, got [0.0, 1.0]",
        "tune.space.a.choice: must not be empty",
        "tune.space.b.uniform: must be two numbers, the smaller one first, got [1.0, 0.0]",
        f"tune.space.b.when.optimiser: {when}",
        f"tune.space.c: {kinds}; has choice, grid",
        "tune.space.g.uniform: must be two numbers, the smaller one first, got [0.5, 0.5]",
        f"tune.space.h.step: {step}, got 1.5",
        f"tune.space.h.when.lr: {when}",
        f"tune.space.i: {kinds}",
        f"tune.space.d.step: {step}, got 1.0",
        "tune.space.e.when.d: is not a possible value, got 3; d is one of: 1, 2",
        "tune.space.repeat: is reserved for {repeat}: choose another name",
        f"tune.space.repeat.step: {step}, got 0.5",
    ]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (
            "  samples: 40\n",
            "",
            "tune.samples: is missing: how many configurations are tried (or give time)",
        ),
        (
            "[sgd]}}",
            "[sdg]}}",
            (
                'tune.space.momentum.when.optimizer: is not a possible value, got "sdg"; did you mean '
                "'sgd'?"
            ),
        ),
        (
            "when: {optimizer",
            "when: {optimiser",
            (
                "tune.space.momentum.when.optimiser: is not a choice or grid above it; did you mean "
                "'optimizer'?"
            ),
        ),
        (
            "when: {optimizer: [sgd]",
            "when: {lr: [1]",
            "tune.space.momentum.when.lr: is not a choice or grid above it; "
            "a parameter may depend only on parameters of these kinds",
        ),
        (
            "  repeats",
            "  search: grid\n  repeats",
            "tune.space.lr: has too many values for search: grid; give grid or choice, or a step",
        ),
        (
            "  repeats",
            "  search: cmaes\n  repeats",
            (
                "tune.search: cmaes needs at least two numeric parameters without `when`, got "
                '"cmaes"'
            ),
        ),
        ('"--lr={lr}", ', "", "tune.space.lr: is used nowhere: write {lr} into command or env"),
        (
            "{lr}",
            "{lrr}",
            "command.1: names {lrr}, but the space has lr, optimizer, momentum, repeat, got "
            '"--lr={lrr}"; '
            "did you mean 'lr'?",
        ),
        ("tune:", "matrix: {a: [1]}\ntune:", "matrix: must not be given together with tune"),
        ("tune:", "watch: {metric: x}\ntune:", "watch: must not be given together with tune"),
    ],
)
def test_a_mistake_in_tune_is_named_with_its_key(
    tmp_path: Path, old: str, new: str, problem: str
) -> None:
    assert old in GOOD
    assert problems(tmp_path, GOOD.replace(old, new)) == [problem]


def test_ranges_in_which_a_search_cannot_count_are_refused(tmp_path: Path) -> None:
    text = f"""
        command: [x, "{{a}}", "{{b}}", "{{c}}", "{{d}}"]
        tune:
          metric: reward
          samples: 5
          space:
            a: {{uniform: [-1.7e308, 1.7e308]}}
            b: {{randint: [0, {2**53 + 1}]}}
            c: {{loguniform: [1, 1.0e301]}}
            d: {{uniform: [0, 1.0e300], step: 1.0e-300}}
    """

    assert problems(tmp_path, text) == [
        (
            "tune.space.a.uniform: must be two numbers between -1e+300 and 1e+300, got [-1.7e+308, "
            "1.7e+308]"
        ),
        "tune.space.b.randint: must be two numbers between -9,007,199,254,740,992 and "
        "9,007,199,254,740,992, "
        "got [0, 9007199254740993]",
        "tune.space.c.loguniform: must be two numbers between -1e+300 and 1e+300, got [1.0, 1e+301]",
    ]
