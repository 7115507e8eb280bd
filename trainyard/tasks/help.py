"""The help pages, with arguments and examples, which Invoke's pages lack."""

from __future__ import annotations

import inspect
import shutil
import textwrap
from collections.abc import Iterator, Sequence

from invoke.parser.argument import Argument
from invoke.parser.context import ParserContext

# The commands by group, in the order in which a new user needs them.
GROUPS: dict[str, tuple[str, ...]] = {
    "Begin": ("init", "cluster.new", "cluster.import"),
    "Clusters": (
        "cluster.up",
        "smoke.run",
        "cluster.status",
        "cluster.plan",
        "cluster.scale",
        "cluster.shell",
        "cluster.logs",
        "cluster.open",
        "cluster.forward",
        "cluster.show",
        "cluster.list",
        "cluster.doctor",
        "cluster.down",
    ),
    "Training": (
        "train.dispatch",
        "train.status",
        "train.logs",
        "train.watch",
        "train.report",
        "train.list",
        "train.compare",
        "train.fetch",
        "train.stop",
        "train.resume",
        "train.import",
    ),
    "Sweeps": ("tune.dispatch", "tune.status", "tune.report", "tune.stop", "tune.resume"),
    "Images": ("image.list", "image.build", "image.lint", "image.push", "image.verify"),
    "Registry": ("registry.up", "registry.status", "registry.trust", "registry.down"),
}
EXAMPLES: dict[str, tuple[str, ...]] = {
    "init": ("trainyard init robots",),
    "cluster.new": (
        "trainyard cluster.new lab ubuntu@10.0.0.5 ubuntu@10.0.0.6 --backend microk8s",
    ),
    "cluster.import": ("trainyard cluster.import ray-cluster.yaml",),
    "cluster.up": ("trainyard cluster.up", "trainyard cluster.up -f lab --set workers.0.count=2"),
    "cluster.scale": ("trainyard cluster.scale gpu=3 cpu=0",),
    "cluster.shell": ("trainyard cluster.shell gpu-0 --command nvidia-smi",),
    "cluster.forward": ("trainyard cluster.forward head 6006",),
    "cluster.down": ("trainyard cluster.down --end-runs",),
    "train.dispatch": (
        "trainyard train.dispatch jobs/spirals",
        "trainyard train.dispatch spirals -f lab --set retries=2 --set matrix.seed=[1,2]",
    ),
    "train.logs": ("trainyard train.logs", "trainyard train.logs spirals --all --no-follow"),
    "train.list": ("trainyard train.list --state failed --since 2d",),
    "train.compare": ("trainyard train.compare spirals-20260101 spirals-20260102",),
    "train.import": (
        "trainyard train.import -- python tuner.py --run_mode local --cfg_file sweep.py",
    ),
    "tune.dispatch": ("trainyard tune.dispatch jobs/search",),
    "image.push": ("trainyard image.push ray-cpu",),
}
# Commands that take another tool's command line after `--`.
TAKING_LINES = frozenset({"cluster.import", "train.import"})
# Placeholders of flags' values; other flags use their own name in capitals.
_VALUES = {"set": "PATH=VALUE", "base": "IMAGE"}
_BEFORE = (
    ("--dry", "Before a command: show what it would do, and change nothing."),
    ("--list, --version", "All commands by name; the version."),
    ("--print-completion-script SHELL", "For bash, zsh or fish."),
)


def overview(summaries: dict[str, str]) -> str:
    """Return the help page of all commands, with their `summaries`."""
    lines = ["Usage: trainyard COMMAND [ARGUMENTS] [FLAGS]"]
    for group, names in GROUPS.items():
        lines += ["", group, *_columns([(name, summaries[name]) for name in names])]
    lines += ["", "Flags", *_columns(_BEFORE)]
    lines += ["", "trainyard COMMAND --help explains its arguments and flags."]
    return "\n".join(lines)


def of_task(name: str, docstring: str, context: ParserContext) -> str:
    """Return the page of one command."""
    positional = list(context.positional_args)
    usage = ["Usage: trainyard", name, *map(_usage, positional), "[FLAGS]"]
    if name in TAKING_LINES:
        usage.append("[-- COMMAND...]")

    lines = [" ".join(usage), ""]
    for line in inspect.cleandoc(docstring).splitlines():
        lines.append(f"  {line}".rstrip())

    if positional:
        rows = [(placeholder(argument), argument.help or "") for argument in positional]
        lines += ["", "Arguments", *_columns(rows)]

    flags = [argument for argument in context.args.values() if argument not in positional]
    rows = [(_flag(argument), _meaning(argument)) for argument in flags]
    lines += ["", "Flags", *_columns(rows)]

    examples = EXAMPLES.get(name)
    if examples:
        lines += ["", "Examples"]
        lines += [f"  {example}" for example in examples]

    return "\n".join(lines)


def _usage(argument: Argument) -> str:
    name = placeholder(argument)
    if argument.kind is list:
        return f"[{name}...]"
    if argument.default is None:
        return name
    return f"[{name}]"


def placeholder(argument: Argument) -> str:
    """Return an argument's name as help and messages write it: JOB_DIR."""
    return str(argument.names[0]).upper().replace("-", "_")


def _flag(argument: Argument) -> str:
    """Return a flag as typed, such as `-f, --file FILE` or `--no-X`."""
    name = str(argument.names[0])
    if argument.kind is bool and argument.default is True:
        return f"--no-{name}"

    flag = f"--{name}"
    if argument.takes_value:
        flag += f" {_VALUES.get(name, placeholder(argument))}"
    letters = [f"-{letter}" for letter in argument.names[1:] if len(letter) == 1]
    return ", ".join([*letters, flag])


def _meaning(argument: Argument) -> str:
    """Return a flag's help without "With --no-X: ", which the flag shows."""
    text = argument.help or ""
    switch = f"With --no-{argument.names[0]}: "
    if not text.startswith(switch):
        return text
    meaning = text.removeprefix(switch)
    return meaning[:1].upper() + meaning[1:]


def _columns(rows: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield lines of two columns; the second is wrapped."""
    width = min(shutil.get_terminal_size().columns, 110)
    left = min(max(len(name) for name, _ in rows), 26) + 4
    for name, text in rows:
        parts = textwrap.wrap(text, max(width - left, 30)) or [""]
        if len(name) + 4 > left:
            yield f"  {name}"
        else:
            yield f"  {name:<{left - 2}}{parts.pop(0)}".rstrip()
        for part in parts:
            yield " " * left + part
