"""Find Schola commands that would fail as a task, or lose their outputs."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from trainyard.errors import Problem

# Schola's interactive entry point in each training library: its command, module and file.
_INTERACTIVE = {
    "rllib": re.compile(
        r"^(?:.*/)?schola-rllib$|^schola\.scripts\.ray\.launch$|^(?:.*/)?schola/scripts/ray/launch\.py$"
    ),
    "sb3": re.compile(
        r"^(?:.*/)?schola-sb3$|^schola\.scripts\.sb3\.launch$|^(?:.*/)?schola/scripts/sb3/launch\.py$"
    ),
}
_WAITS = (
    "Schola's interactive entry point waits for a key press when training is done: on a cluster, "
    "the task then fails. Write {}, with the same flags"
)
_INSTEAD = {
    "rllib": "schola-train",
    "sb3": (
        "[python, -c, 'from schola.scripts.sb3.launch import main_from_cli; main_from_cli()', ...]"
    ),
}
_OWN_RAY = (
    "--num-cpus starts another Ray, which fails inside a cluster. Leave it out: `resources:` gives "
    "a task its CPUs"
)
_RELATIVE = "a relative --{} is lost: each task runs in its own directory. Write an absolute path{}"
_CHECKPOINTS = ", or leave it out: schola-train writes to $TRAINYARD_OUTPUT, which comes back"

_NEWER = "if the image has a newer Schola, write its flags after [env, schola-train, ...]"
# Schola 1.1 and newer take an algorithm after the flags; 1.0.0 trains only PPO.
_ALGORITHMS = ("PPO", "APPO", "IMPALA", "SAC")
_SHELLS = ("bash", "sh", "dash", "zsh")

# Flags of Schola 1.0.0 (schola/scripts/ray/launch.py); `check` and `num-env-runners` are added by
# our schola-train (images/schola).
_SWITCHES = (
    "enable-checkpoints save-final-policy export-onnx launch-unreal headless disable-script check"
)
_VALUES = (
    "n-steps learning-rate mini-batch-size activation num-gpus num-cpus num-learners "
    "num-cpus-per-learner num-gpus-per-learner num-cpus-for-main-process resume-from "
    "checkpoint-dir save-freq name-prefix unreal-path executable-path map fps num-env-runners"
)
_SHORT = {"t": "timesteps", "p": "port", "scholav": "schola-verbosity", "rllibv": "rllib-verbosity"}


class _Launcher(argparse.ArgumentParser):
    def __init__(self) -> None:
        super().__init__()
        for name in _SWITCHES.split():
            self.add_argument(f"--{name}", action="store_true")
        for name in _VALUES.split():
            self.add_argument(f"--{name}")
        for short, name in _SHORT.items():
            self.add_argument(f"-{short}", f"--{name}")
        self.add_argument("--fcnet-hiddens", nargs="+")

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def problems(commands: Mapping[str, Sequence[str]]) -> Iterator[Problem]:
    """Yield each mistake once, with the first task that has it."""
    first_task: dict[str, str] = {}
    for task, command in commands.items():
        for part in (command, *_in_shell(command)):
            for message in _wrong(part):
                first_task.setdefault(message, task)

    for message, task in first_task.items():
        yield Problem(f"command of task {task}", message)


def _in_shell(command: Sequence[str]) -> Iterator[list[str]]:
    """Yield the commands in the line of `sh -c LINE`.

    Leading assignments and `exec` are left out. The line is read up to the
    first unterminated quotation. Other commands yield nothing.
    """
    flags = [index for index, word in enumerate(command) if re.fullmatch(r"-[a-z]*c", word)]
    if Path(command[0]).name not in _SHELLS or not flags or flags[0] + 1 == len(command):
        return

    line = command[flags[0] + 1]
    words = shlex.shlex(line, posix=True, punctuation_chars=";&|()\n")
    words.whitespace = " \t"
    words.whitespace_split = True
    found: list[str] = []
    try:
        for word in [*words, ";"]:
            if not word.strip(";&|()\n"):
                if found:
                    yield found
                found = []
            elif found or not re.match(r"[A-Za-z_][A-Za-z0-9_]*=|exec$", word):
                found.append(word)
    except ValueError:
        # The shell itself will report the unterminated quotation.
        return


def _wrong(command: Sequence[str]) -> Iterator[str]:
    for library, waits in _INTERACTIVE.items():
        if any(waits.match(word) for word in command):
            yield _WAITS.format(_INSTEAD[library])

    if Path(command[0]).name == "schola-train":
        yield from _wrong_for_launcher(command)


def _wrong_for_launcher(command: Sequence[str]) -> Iterator[str]:
    try:
        given, unknown = _Launcher().parse_known_args(command[1:])
    except ValueError as error:
        yield f"Schola 1.0.0's launcher: {error}"
        return

    if given.num_cpus:
        yield _OWN_RAY

    for name, else_ in (("checkpoint-dir", _CHECKPOINTS), ("resume-from", "")):
        path = getattr(given, name.replace("-", "_"))
        # A sweep may fill in an absolute path for a placeholder ("{").
        if path and not path.startswith(("/", "{")):
            yield _RELATIVE.format(name, else_)

    for word in unknown:
        if word.startswith("-"):
            flag = word.partition("=")[0]
            yield f"Schola 1.0.0's launcher has no flag {flag}; {_NEWER}"

    for word in unknown:
        if word in _ALGORITHMS:
            yield f"Schola 1.0.0's launcher trains PPO, and takes no {word}; {_NEWER}"
