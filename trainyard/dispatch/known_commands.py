"""Commands that are known to fail as a task, or to lose what they made: refused before anything is sent."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainyard.errors import Problem
from trainyard.spec.expand import TaskSpec


@dataclass(frozen=True)
class Rule:
    """What a command must not be: a pattern over its words, one a line, and why with what to write instead."""

    pattern: str
    message: str


_SCHOLA_TRAIN = r"\A(?:.*/)?schola-train$(?s:.*)"
# Schola 1.0.0, schola/scripts/ray/launch.py.
RULES = (
    Rule(
        r"\A(?:.*/)?schola-rllib$|^schola\.scripts\.ray\.launch$|^(?:.*/)?schola/scripts/ray/launch\.py$",
        "Schola's interactive entry point waits for a key at its end, which nobody presses on a cluster: training "
        "that succeeded ends as failed. Write schola-train, with the same flags",
    ),
    Rule(
        rf"{_SCHOLA_TRAIN}^--num-cpus(?:=|$)",
        "--num-cpus starts a Ray of its own, which fails inside of a cluster. Leave it out: `resources:` says it",
    ),
    Rule(
        rf"{_SCHOLA_TRAIN}^--checkpoint-dir[=\n](?!/)",
        "a relative --checkpoint-dir is lost with the task's directory. Leave it out: schola-train writes to "
        "$TRAINYARD_OUTPUT, which comes back; or write an absolute path that outlives the node",
    ),
)


def problems(tasks: Sequence[TaskSpec]) -> Iterator[Problem]:
    """Yield what is wrong with the tasks' commands: each rule once, with the first task that breaks it."""
    for rule in RULES:
        broken = (task for task in tasks if re.search(rule.pattern, "\n".join(task.command), re.MULTILINE))
        if task := next(broken, None):
            yield Problem(f"command of task {task.name}", rule.message)
