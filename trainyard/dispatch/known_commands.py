"""Commands that are known to fail as a task, or to lose what they made: refused before anything is sent."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainyard.errors import Problem
from trainyard.spec.expand import TaskSpec
from trainyard.wording import did_you_mean


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
    Rule(
        rf"{_SCHOLA_TRAIN}^--resume-from[=\n](?!/)",
        "Ray Tune trains in a directory of its own, where a relative --resume-from is not found. Write the absolute "
        "path of a checkpoint that every node has",
    ),
    Rule(
        rf"{_SCHOLA_TRAIN}^--activation[=\n](?!(?:relu|sigmoid|tanh)$)",
        "--activation must be one of: relu, sigmoid, tanh",
    ),
)
_FLAG_TEXT = (
    "-h --help -t --timesteps --n-steps --learning-rate --mini-batch-size --fcnet-hiddens --activation --num-gpus "
    "--num-cpus --num-learners --num-cpus-per-learner --num-gpus-per-learner --num-cpus-for-main-process "
    "--resume-from --enable-checkpoints --checkpoint-dir --save-freq --save-final-policy --export-onnx "
    "--name-prefix --launch-unreal --unreal-path --executable-path --headless -p --port --map --fps "
    "--disable-script -scholav --schola-verbosity -rllibv --rllib-verbosity"
)
_FLAGS = tuple(_FLAG_TEXT.split())


def problems(tasks: Sequence[TaskSpec]) -> Iterator[Problem]:
    """Yield all that is wrong with the tasks' commands, each once, with the first task of which it is so."""
    first: dict[str, str] = {}
    for task in tasks:
        for message in _wrong(task.command):
            first.setdefault(message, task.name)
    yield from (Problem(f"command of task {name}", message) for message, name in first.items())


def _wrong(command: Sequence[str]) -> Iterator[str]:
    lines = "\n".join(command)
    yield from (rule.message for rule in RULES if re.search(rule.pattern, lines, re.MULTILINE))
    if re.search(_SCHOLA_TRAIN, lines, re.MULTILINE):
        for flag in (word.partition("=")[0] for word in command[1:] if re.match(r"--?[A-Za-z]", word)):
            # Its parser accepts the beginning of a long flag, and -t and -p with their value in the same word.
            is_long = flag.startswith("--")
            if not any(known.startswith(flag) if is_long else flag.startswith(known) for known in _FLAGS):
                yield f"Schola 1.0.0's launcher has no flag {flag}{did_you_mean(flag, _FLAGS)}"
