"""Run one training of Isaac Lab: a trial of a JobCfg class, or a command, with checkpoints.

    python isaac_task.py space --cfg_file FILE [--cfg_class NAME]     print what the class varies, as JSON
    python isaac_task.py run --cfg_file FILE --cfg_class NAME -- NAME=VALUE...
    python isaac_task.py resume -- COMMAND...

A later attempt continues from the newest checkpoint of the former one. `train.import` copies this
file next to Isaac Lab's own cfg file. It loads that file with stand-ins for `ray.tune`, `tuner` and
`util`, so neither Ray Tune nor Isaac Lab is needed for that. It uses only the standard library, of
Python 3.10 or newer.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import functools
import hashlib
import importlib
import inspect
import json
import math
import os
import random
import re
import shlex
import signal
import statistics
import subprocess
import sys
import time
import types
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROGRAM = "isaac_task.py"
ISAAC_LAB = "/workspace/isaaclab/"
SECTIONS = ("runner_args", "hydra_args")
# By library: its checkpoint files below logs/LIBRARY/.
CHECKPOINTS = {
    "rl_games": "nn/*.pth",
    "rsl_rl": "model_*.pt",
    "skrl": "checkpoints/*.pt",
    "sb3": "model*.zip",
}
POLL_SECONDS = 2.0
GRACE_SECONDS = 20.0
# How many trials are tried at import, to find values that cannot be passed to a training.
TRIED = 12
Config = dict[str, Any]
Place = tuple[str, ...]  # the keys that lead to a value


# ---- stand-ins for `ray.tune` ----


@dataclass
class Domain:
    """The result of one of Ray Tune's functions, such as tune.uniform.

    `kind` is its key in `tune.space` of a job file; `of` are the options, or [lower, upper].
    """

    kind: str
    of: list[Any]
    step: float | None = None
    function: Callable[..., Any] | None = None

    @property
    def varies(self) -> bool:
        """Say whether the search has to choose: not for a function or a single option."""
        return self.function is None and len(set(map(as_text, self.of))) > 1

    def quantized(self, q: float) -> Domain:
        """Add steps of `q`, as Ray Tune does for quniform and qrandint."""
        if self.kind not in ("uniform", "randint"):
            refused(
                f"{self.kind}(...).quantized",
                "cannot be searched: quniform and qrandint have steps",
            )()
        # Ray Tune includes the upper end of an integer only if it is quantised.
        return Domain(self.kind, [self.of[0], self.of[1] + (self.kind == "randint")], q)

    def sample(self, config: Any = None, *_: Any) -> Any:
        """Draw a value as Ray Tune does; a function gets `config` if it takes an argument."""
        if self.function is not None:
            if inspect.signature(self.function).parameters:
                return self.function(config)
            return self.function()
        if self.kind in ("choice", "grid"):
            return random.choice(self.of)

        low, high = self.of
        if self.kind == "randint":
            return random.randrange(low, high + 1, self.step or 1)
        if self.kind in ("loguniform", "lograndint"):
            value = math.exp(random.uniform(math.log(low), math.log(high)))
            if self.kind == "loguniform":
                return value
            return round(value)

        value = random.uniform(low, high)
        if self.step:
            return round(value / self.step) * self.step

        return value

    def entry(self) -> dict[str, Any]:
        """Return the entry for this domain in `tune.space` of a job file."""
        of = [
            value if isinstance(value, (str, int, float)) else as_text(value) for value in self.of
        ]
        return {self.kind: of, **({"step": self.step} if self.step else {})}

    def read(self, text: str) -> Any:
        """Return the value for a text that the search chose, in this domain's type."""
        if self.kind in ("choice", "grid"):
            return {as_text(option): option for option in self.of}[text]
        if self.kind in ("randint", "lograndint"):
            return int(text)
        return float(text)


# Ray Tune excludes the upper end of an integer, unless it is quantised.
FUNCTIONS: dict[str, Callable[..., Domain]] = {
    "choice": lambda categories: Domain("choice", list(categories)),
    "grid_search": lambda values: Domain("grid", list(values)),
    "sample_from": lambda func: Domain("sample_from", [], function=func),
    "uniform": lambda lower, upper: Domain("uniform", [lower, upper]),
    "quniform": lambda lower, upper, q: Domain("uniform", [lower, upper], q),
    "loguniform": lambda lower, upper, base=10: Domain("loguniform", [lower, upper]),
    "randint": lambda lower, upper: Domain("randint", [lower, upper - 1]),
    "qrandint": lambda lower, upper, q=1: Domain("randint", [lower, upper], q),
    "lograndint": lambda lower, upper, base=10: Domain("lograndint", [lower, upper - 1]),
}
# Functions of Ray Tune without a counterpart in Optuna, and the message for users.
WITHOUT_COUNTERPART = {
    "randn": "has no bounds: use uniform",
    "qrandn": "has no bounds: use quniform",
    "qloguniform": (
        "has steps and a logarithm, and Optuna takes one of the two: use loguniform or quniform"
    ),
    "qlograndint": (
        "has steps and a logarithm, and Optuna takes one of the two: use lograndint or qrandint"
    ),
}


def refused(name: str, why: str) -> Callable[..., Any]:
    """Return a function for tune.NAME that ends this program with a message."""

    def end(*_: Any, **__: Any) -> None:
        sys.exit(f"{PROGRAM}: tune.{name} {why}")

    return end


def as_text(value: Any) -> str:
    """Write a value as placeholders of a job file do; lists and dicts as JSON."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple, dict)):
        return json.dumps(value, default=str)
    return str(value)


class Stopper:
    """The base class of stoppers in a cfg file. Each trial has its own; `stop_all` is unused."""

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return False


class MaximumIterationStopper(Stopper):
    """Ends a trial after `max_iter` iterations."""

    def __init__(self, max_iter: int) -> None:
        self._left = max_iter

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        self._left -= 1
        return self._left <= 0


class TrialPlateauStopper(Stopper):
    """Ends a trial once the latest values of a metric differ by less than `std`."""

    def __init__(
        self,
        metric: str,
        std: float = 0.01,
        num_results: int = 4,
        grace_period: int = 4,
        metric_threshold: float | None = None,
        mode: str | None = None,
    ) -> None:
        if metric_threshold and mode not in ("min", "max"):
            raise ValueError("with a metric_threshold, mode is min or max")
        self._metric = metric
        self._std = std
        self._latest: deque[float | None] = deque(maxlen=num_results)
        self._grace_left = grace_period
        self._threshold = metric_threshold
        self._mode = mode

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        value = result.get(self._metric)
        self._latest.append(value)
        self._grace_left -= 1
        values = [each for each in self._latest if each is not None]
        if self._grace_left > 0 or value is None or len(values) < (self._latest.maxlen or 0):
            return False

        if self._threshold is not None:
            if self._mode == "min":
                is_short = value > self._threshold
            else:
                is_short = value < self._threshold
            if is_short:
                return False

        return statistics.pstdev(values) < self._std


class FunctionStopper(Stopper):
    """Ends a trial when a function says so."""

    def __init__(self, function: Callable[[str, dict[str, Any]], bool]) -> None:
        self._function = function

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return self._function(trial_id, result)


class CombinedStopper(Stopper):
    """Ends a trial when one of several stoppers does."""

    def __init__(self, *stoppers: Stopper) -> None:
        self.stoppers = stoppers

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return any(stopper(trial_id, result) for stopper in self.stoppers)


class TimeoutStopper(Stopper):
    """Ray's stopper of a whole sweep, which is refused here."""

    __init__ = refused(
        "stopper.TimeoutStopper", "ends a whole sweep: here `tune.time` of the job file does"
    )


class ExperimentPlateauStopper(Stopper):
    """Ray's stopper of a whole sweep, which is refused here."""

    __init__ = refused(
        "stopper.ExperimentPlateauStopper", "ends a whole sweep: here `tune.stop.plateau` does"
    )


STOPPERS: dict[str, Callable[..., Any]] = {
    "Stopper": Stopper,
    "NoopStopper": Stopper,
    "MaximumIterationStopper": MaximumIterationStopper,
    "TrialPlateauStopper": TrialPlateauStopper,
    "FunctionStopper": FunctionStopper,
    "CombinedStopper": CombinedStopper,
    "TimeoutStopper": TimeoutStopper,
    "ExperimentPlateauStopper": ExperimentPlateauStopper,
}


class ProgressReporter:
    """The base class of progress reporters in a cfg file; only its columns are read."""

    def __init__(self, *_: Any, metric_columns: Any = (), **__: Any) -> None:
        self.columns = list(metric_columns or ())


class OldJobCfg:
    """The base class of sweeps in older Isaac Lab; `cfg` has the values to choose."""

    workflow = "scripts/reinforcement_learning/rl_games/train.py"
    flags = "--"  # the beginning of keys of runner_args that are flags

    def __init__(self, cfg: Config) -> None:
        if "--task" not in cfg.get("runner_args", {}) or "hydra_args" not in cfg:
            sys.exit(f"{PROGRAM}: a JobCfg class needs runner_args with --task, and hydra_args")
        self.cfg = cfg


class NewJobCfg(OldJobCfg):
    """The base class of sweeps in isaaclab_contrib: one workflow, with the library as a flag."""

    workflow = "scripts/reinforcement_learning/train.py"
    flags = "-"

    def __init__(self, cfg: Config) -> None:
        cfg.get("runner_args", {}).setdefault("--rl_library", "rsl_rl")
        super().__init__(cfg)


def populate_isaac_ray_cfg_args(cfg: Config) -> Config:
    for section in SECTIONS:
        cfg.setdefault(section, {})
    return cfg


def stand_ins(directory: Path) -> None:
    """Put stand-ins of the modules that a cfg file imports into sys.modules.

    They are those of both generations of Isaac Lab, and take the place of installed ones.
    """
    reporters = dict.fromkeys(
        ("ProgressReporter", "CLIReporter", "JupyterNotebookReporter"), ProgressReporter
    )
    without = {name: refused(name, why) for name, why in WITHOUT_COUNTERPART.items()}
    tune = {**FUNCTIONS, **without, **reporters, **STOPPERS}
    util = {"populate_isaac_ray_cfg_args": populate_isaac_ray_cfg_args}

    contents: dict[str, dict[str, Any]] = {
        "ray": {},
        "ray.tune": tune,
        "ray.tune.stopper": tune,
        "ray.tune.progress_reporter": tune,
        "tuner": {"JobCfg": OldJobCfg},
        "util": util,
        "isaaclab_contrib": {},
        "isaaclab_contrib.rl": {},
        "isaaclab_contrib.rl.ray": {"__path__": [str(directory.parent)]},
        "isaaclab_contrib.rl.ray.tuner": {"JobCfg": NewJobCfg},
        "isaaclab_contrib.rl.ray.util": util,
        "isaaclab_contrib.rl.ray.hyperparameter_tuning": {"__path__": [str(directory)]},
    }
    for name, content in contents.items():
        module = sys.modules[name] = types.ModuleType(name)
        module.__dict__.update({"__path__": [], **content})
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)


# ---- a cfg file, loaded ----


def load(file: Path) -> types.ModuleType:
    """Import a cfg file as Isaac Lab's tuner does: its directory and parent are in sys.path."""
    directory = file.resolve().parent
    stand_ins(directory)
    sys.path[:0] = [str(directory), str(directory.parent)]
    seed(0)
    return importlib.import_module(file.stem)


def member(module: types.ModuleType, name: str | None, base: type, what: str) -> type:
    """Return the subclass of `base` with this name; without a name, the file's only one.

    Exits with a message if there is none.
    """
    classes = {key: value for key, value in vars(module).items() if inspect.isclass(value)}
    # The base classes of this program do not count.
    known = {}
    for key, value in classes.items():
        if issubclass(value, base) and value.__module__ != __name__:
            known[key] = value

    own = [key for key, value in known.items() if value.__module__ == module.__name__]
    name = own[0] if name is None and len(own) == 1 else name
    if name not in known:
        if name:
            wrong = f"the file has no {what} {name}"
        else:
            wrong = f"which {what} is meant? Give --cfg-class"
        sys.exit(f"{PROGRAM}: {wrong} (it has: {', '.join(known) or 'none'})")

    return known[name]


def seed(number: int) -> None:
    """Seed all random generators of the modules, also the file's own ones.

    Without that, the file's own generators would give each trial the same values.
    """
    random.seed(number)
    of_numpy = sys.modules.get("numpy.random")
    torch = sys.modules.get("torch")

    for each in own_globals():
        if isinstance(each, random.Random):
            each.seed(number)
        elif of_numpy and isinstance(each, of_numpy.Generator):
            each.bit_generator.state = type(each.bit_generator)(number).state
        elif of_numpy and isinstance(each, of_numpy.RandomState):
            each.seed(number % 2**32)

    if of_numpy:
        of_numpy.seed(number % 2**32)

    if torch:
        torch.manual_seed(number)


def own_globals() -> Iterator[Any]:
    """Yield the global values of modules that are not installed: the file, and its own imports."""
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file and not is_installed(place(file)):
            yield from list(vars(module).values())


def config_of(module: types.ModuleType, name: str | None) -> tuple[type, Config]:
    """Return a JobCfg class, and the `cfg` of a new instance, with grid_search as a Domain.

    Exits with a message for values that cannot be searched.
    """
    made = member(module, name, OldJobCfg, "JobCfg class")
    cfg: Config = made().cfg
    for section in SECTIONS:
        if not isinstance(cfg.get(section), dict):
            sys.exit(f"{PROGRAM}: {section} of {made.__name__} must be a mapping")
    for place, value in list(leaves(cfg)):
        if is_only(value, "grid_search"):
            if not isinstance(value["grid_search"], (list, tuple)):
                sys.exit(f"{PROGRAM}: grid_search of {named(place)} must be a list")
            put(cfg, place, FUNCTIONS["grid_search"](value["grid_search"]))
    refuse_unfit(cfg)
    return made, cfg


def leaves(tree: Mapping[str, Any], above: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Yield the values of a configuration with their places.

    Below SECTIONS, a value is the whole value of a key, from which a word of the command is made.
    """
    for key, value in tree.items():
        is_inner = (
            isinstance(value, dict)
            and not is_only(value, "grid_search")
            and not is_only(value, "eval")
        )
        if is_inner and not (above and above[0] in SECTIONS):
            yield from leaves(value, (*above, key))
        else:
            yield (*above, key), value


def is_only(value: object, key: str) -> bool:
    """Say whether a mapping has only this key, such as Ray Tune's {"grid_search": []}."""
    return isinstance(value, dict) and set(value) == {key}


def put(config: Config, place: Place, value: Any) -> None:
    for key in place[:-1]:
        config = config[key]
    config[place[-1]] = value


def named(place: Place) -> str:
    """Name a place in messages: the argument's key below SECTIONS, else all keys."""
    if place[0] in SECTIONS:
        return str(place[1])
    return ".".join(map(str, place))


def refuse_unfit(config: Config, *, is_made: bool = False) -> None:
    """Exit with a message for a value that cannot be passed to a training as text.

    `is_made`: all values have been chosen, so no Domain may be left.
    """
    for place, value in leaves(config):
        for number, part in enumerate(parts(value)):
            if (why := unfit(part, is_whole=number == 0 and not is_made)) and (
                place[0] in SECTIONS or why in SEARCHED
            ):
                sys.exit(f"{PROGRAM}: {named(place)}: {why}")


NESTED = (
    "a choice inside a list, a mapping, another choice or a function's result cannot be "
    "searched: make it the whole "
    "value of a key, or let tune.sample_from make that value"
)
EVAL = "{'eval': ...} is not read; write tune.sample_from(lambda spec: ...)"
# Reasons that count also outside of SECTIONS: Ray Tune would choose these values, too, and
# functions may read them.
SEARCHED = (NESTED, EVAL, "there is nothing to choose from")


def unfit(part: Any, *, is_whole: bool) -> str:
    """Return why a value, or a part of one, cannot be passed to a training; "" if it can."""
    if is_only(part, "eval"):
        return EVAL

    if isinstance(part, Domain) or is_only(part, "grid_search"):
        is_empty = is_whole and not part.of and not part.function
        if is_empty:
            return SEARCHED[-1]
        if is_whole:
            return ""
        return NESTED

    if callable(part):
        return (
            f"{getattr(part, '__name__', 'an object')} is a function; write tune.sample_from(...)"
        )
    # Python's default text of an object has an address, which differs in each process.
    if re.search(r" at 0x[0-9a-f]+>$", str(part)):
        return "an object without a text of its own"

    return ""


def parts(value: Any) -> Iterator[Any]:
    """Yield a value and all values inside of it: of lists, mappings, and options of a choice."""
    yield value
    if isinstance(value, Domain):
        inner = value.of
    elif isinstance(value, dict):
        inner = value.values()
    else:
        inner = value
    if not isinstance(inner, (str, bytes)) and (
        inner is not value or isinstance(value, (list, tuple, set, frozenset))
    ):
        for each in inner:
            yield from parts(each)


def domains(cfg: Config) -> Iterator[tuple[Place, Domain]]:
    return ((place, value) for place, value in leaves(cfg) if isinstance(value, Domain))


def searched(cfg: Config) -> dict[str, tuple[Place, Domain]]:
    """Return the places and domains that the search chooses, by a short unique name."""
    found: dict[str, tuple[Place, Domain]] = {}
    for place, domain in domains(cfg):
        if domain.varies:
            words_of_it = re.sub(r"[^A-Za-z0-9_.]", "_", named(place).lstrip("-")).split(".")
            names = ["_".join(words_of_it[-length:]) for length in range(1, len(words_of_it) + 1)]
            # A sweep uses "draw" and "repeat" itself.
            taken = {*found, "draw", "repeat"}
            free = (name for name in names if name not in taken and re.match("[A-Za-z_]", name))
            found[next(free, f"p{len(found)}")] = (place, domain)
    return found


def resolved(cfg: Config, values: dict[str, str], draw: int) -> Config:
    """Return the configuration of one trial: the search's `values`, and results of functions.

    `draw` seeds the random values of these functions. It is the same for each repeat and each
    attempt of a trial.
    """
    result: Config = copied(cfg)
    for place, domain in domains(cfg):
        if not domain.varies and domain.function is None:
            put(result, place, domain.sample())

    for name, (place, domain) in searched(cfg).items():
        put(result, place, domain.read(values[name]))

    seed(draw)
    functions = {place: domain.function for place, domain in domains(cfg) if domain.function}
    while functions:
        later = call(functions, result)
        if len(later) == len(functions):
            names = ", ".join(map(named, later))
            sys.exit(
                f"{PROGRAM}: each of these functions waits for what another one makes: {names}"
            )
        functions = later

    refuse_unfit(result, is_made=True)
    return result


def copied(tree: Config) -> Config:
    """Copy a configuration and its mappings; their order is that of the command's words."""
    result = copy.copy(tree)
    for key, value in tree.items():
        if isinstance(value, dict):
            result[key] = copied(value)
    return result


Functions = dict[Place, Callable[..., Any]]


class NotMadeError(Exception):
    """A function reads a value that another function has not made yet."""


class Made(dict[str, Any]):
    """A configuration for functions, which read it by keys or attributes.

    A value that is not made yet raises NotMadeError.
    """

    def __getitem__(self, key: str) -> Any:
        value = super().__getitem__(key)
        if isinstance(value, Domain):
            raise NotMadeError(key)
        if isinstance(value, dict):
            return Made(value)
        return value

    def get(self, key: str, default: Any = None) -> Any:
        try:
            return self[key]
        except KeyError:
            return default

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def call(functions: Functions, result: Config) -> Functions:
    """Put the results of functions into `result`; return the functions that wait for others.

    Ray Tune calls functions in such passes, too.
    """
    later: Functions = {}
    for place, function in functions.items():
        try:
            put(result, place, value_of(function, result))
        except NotMadeError:
            later[place] = function
        except Exception as error:
            given = f"it is given a dictionary with {' and '.join(SECTIONS)}"
            sys.exit(
                f"{PROGRAM}: the function of {named(place)} failed: {type(error).__name__}: "
                f"{error}; {given}"
            )
    return later


def value_of(function: Callable[..., Any], config: Config) -> Any:
    if not inspect.signature(function).parameters:
        return function()
    try:
        return function(Made(config))
    except (AttributeError, KeyError) as error:
        # In Ray Tune's older form, sample_from(lambda spec: spec.config...).
        with contextlib.suppress(AttributeError, KeyError):
            return function(Made(config=config))
        raise error


# ---- a command line ----


def words(config: Config, flags: str, environ: Mapping[str, str]) -> list[str]:
    """Return the words that Isaac Lab passes to a workflow.

    Isaac Lab makes a shell's line of them: quotes and variables are read as by a shell.
    """
    runner: list[str] = []
    for key, value in config["runner_args"].items():
        if key.startswith(flags) and not key.endswith("_singleton"):
            flag = [key]
        else:
            flag = []
        try:
            runner += [*flag, *shlex.split(expanded(key, str(value), environ))]
        except ValueError as error:
            sys.exit(f"{PROGRAM}: {key} {value}: {error}")

    return [
        *runner,
        *(hydra_word(key, value, environ) for key, value in config["hydra_args"].items()),
    ]


def hydra_word(key: str, value: Any, environ: Mapping[str, str]) -> str:
    """Return the word for a value of Hydra, as a shell reads Isaac Lab's text (process_args)."""
    written = f"{key}={hydra_text(value)}"
    if not isinstance(value, (str, list)):
        return written

    if isinstance(value, list) or re.search("[{}]", value):
        written = f"'{written}'"
    elif not SHELL_QUOTES.search(value):
        # A value with spaces stays one word here; Isaac Lab's shell would split it.
        return expanded(key, written, environ, home=False)

    try:
        found = shlex.split(expanded(key, written, environ, home=False))
    except ValueError as error:
        sys.exit(f"{PROGRAM}: {key} {value}: {error}")

    if len(found) != 1:
        sys.exit(
            f"{PROGRAM}: {key} {value}: a shell makes {len(found)} words of it: {' | '.join(found)}"
        )

    return found[0]


SHELL_QUOTES = re.compile(r"""['"\\]""")
# The first two alternatives skip text without variables: single quotes, and escaped characters.
VARIABLE = re.compile(r"'[^']*'|\\.|\$([A-Za-z_]\w*)|\$\{([A-Za-z_]\w*)\}|(?<!\S)(~)(?=[/\s]|$)")


def expanded(key: str, text: str, environ: Mapping[str, str], *, home: bool = True) -> str:
    """Expand variables, and with `home` also ~, by the node's environment, as a shell does.

    Exits with a message for a variable that is not set.
    """

    def value_of_it(found: re.Match[str]) -> str:
        name = found[1] or found[2] or ("HOME" if found[3] and home else "")
        try:
            return environ[name] if name else found[0]
        except KeyError:
            sys.exit(f"{PROGRAM}: ${name} of {key} is not set on this node")

    return VARIABLE.sub(value_of_it, text)


def hydra_text(value: Any) -> str:
    if not isinstance(value, list):
        return str(value)
    of_dicts = bool(value) and isinstance(value[0], dict)
    items = []
    for item in value:
        items.append(
            "{" + ",".join(f"{k}:{v}" for k, v in item.items()) + "}" if of_dicts else str(item)
        )
    return f"[{','.join(items)}]"


def process_mark() -> str:
    """Make ten digits for -rid from the task's name; newer workflows take and ignore them."""
    task = f"{os.environ.get('TRAINYARD_RUN', '')}:{os.environ.get('TRAINYARD_TASK', '')}"
    return str(10**9 + int(hashlib.sha256(task.encode()).hexdigest(), 16) % (9 * 10**9))


def continued(command: list[str]) -> list[str]:
    """Add the flags to continue from the newest checkpoint in logs/.

    In the first attempt, or without a checkpoint, the command is unchanged.
    """
    left = [
        (path.stat().st_mtime, path, library)
        for library, pattern in CHECKPOINTS.items()
        for path in Path("logs", library).rglob(pattern)
    ]
    if not left or os.environ.get("TRAINYARD_ATTEMPT", "1") == "1":
        return command

    _, newest, library = max(left)
    script = next((Path(word) for word in command if Path(word).name == "train.py"), Path())
    if script.parent.name not in CHECKPOINTS:
        # The workflow for all libraries finds the newest checkpoint itself.
        return [*command, "--checkpoint", "latest"]
    if library == "rsl_rl":
        return [*command, "--resume"]

    return [*command, "--checkpoint", str(newest.resolve())]


# ---- stoppers ----


def rounds(logs: Path, goes_on: Callable[[], bool]) -> Iterator[dict[str, Any]]:
    """Yield the newest scalars of event files after each round, by Isaac Lab's tuner's names.

    A round ends when a scalar is written that was written in this round before. `goes_on` waits a
    moment, and says whether to read further.
    """
    # event_files.py of Trainyard's runner: `train.import` copies it if there is a stopper.
    from event_files import scalars

    began = time.monotonic()
    read = Counter[Path]()
    counts = Counter[str]()
    latest = {}

    while goes_on():
        for path in sorted(logs.rglob("*.tfevents.*")):
            with path.open("rb") as file:
                file.seek(read[path])
                for tag, _, value, _ in scalars(file):
                    name = re.sub(r"_+", "_", re.sub(r"[^0-9A-Za-z_./]", "_", tag)).strip("_")
                    if counts[name] == (done := max(counts.values(), default=0)) > 0:
                        yield {
                            **latest,
                            "training_iteration": done,
                            "time_total_s": time.monotonic() - began,
                        }
                    counts[name] += 1
                    latest[name] = value

                read[path] = file.tell()


def stopped_early(command: list[str], stopper: Callable[..., bool], name: str) -> int:
    """Run a command until it ends, or the stopper ends it; return its exit code, 0 if stopped."""
    process = subprocess.Popen(command, start_new_session=True)

    def goes_on(seconds: float = POLL_SECONDS) -> bool:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
        return process.returncode is None

    for result in rounds(Path("logs"), goes_on):
        if stopper(os.environ.get("TRAINYARD_TASK", "trial"), result):
            print(
                f"{name} ended this trial in iteration {result['training_iteration']}", flush=True
            )
            # To the process group, since isaaclab.sh does not pass the signal on to Python. If the
            # training still runs after GRACE_SECONDS, Trainyard's runner ends it.
            os.killpg(process.pid, signal.SIGTERM)
            goes_on(GRACE_SECONDS)
            return 0

    if process.returncode >= 0:
        return process.returncode

    return 128 - process.returncode


# ---- the commands ----

STOOD_FOR = ("ray", "tuner", "util", "isaaclab_contrib")
HAD_HERE = (
    "A cfg file is loaded without Ray and Isaac Lab: it can import ray.tune with its functions "
    "of a search space, its "
    "stoppers and reporters, JobCfg of tuner, and populate_isaac_ray_cfg_args of util. `search` "
    "and `prune` of the job "
    "file's `tune` replace searchers and schedulers"
)


def arguments(given: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=["space", "run", "resume"])

    for flag in (
        "--cfg_file",
        "--cfg_class",
        "--stopper",
        "--progress_reporter",
        "--workflow",
        "--rl_library",
    ):
        parser.add_argument(flag)

    parser.add_argument("--python", default=f"{ISAAC_LAB}isaaclab.sh -p")
    parser.add_argument(
        "--draw", type=int, default=0, help="seeds what the file itself draws for this trial"
    )
    parser.add_argument(
        "--print", action="store_true", help="print the command as JSON instead of running it"
    )
    split = given.index("--") if "--" in given else len(given)

    return parser.parse_args(given[:split], argparse.Namespace(values=given[split + 1 :]))


def described(asked: argparse.Namespace, opened: Sequence[str] = ()) -> dict[str, Any]:
    """Describe a class for `train.import`: values to search, needed files, notes for users.

    `opened` is the list of paths that this process opens, which grows while the file is loaded.
    """
    file = Path(asked.cfg_file).resolve()
    module = load(file)
    stopper = None

    if asked.stopper:
        stopper = member(module, asked.stopper, Stopper, "stopper")()

    reporter = None
    if asked.progress_reporter:
        reporter = member(module, asked.progress_reporter, ProgressReporter, "progress reporter")()

    made, cfg = config_of(module, asked.cfg_class)
    trials = list(tried(cfg))
    near, away = needed(file.parent, opened)
    return {
        "ends_sweep": may_end_sweep(stopper),
        "columns": reporter.columns if reporter else [],
        "cfg_class": made.__name__,
        "space": {name: domain.entry() for name, (_, domain) in searched(cfg).items()},
        "draws": any(domain.function for _, domain in domains(cfg))
        and may_draw({file, *imported(file.parent)}),
        "files": sorted(str(path.relative_to(file.parent.parent)) for path in near),
        "notes": [
            *notes_on(cfg, trials),
            *(f"{path} is read by the class, and not copied." for path in sorted(away)),
        ],
    }


def tried(cfg: Config) -> Iterator[Config]:
    """Yield TRIED trials of random values; exit with a message if one cannot be passed on."""
    for number in range(1, TRIED + 1):
        values = {name: as_text(domain.sample()) for name, (_, domain) in searched(cfg).items()}
        trial = resolved(cfg, values, number)
        # Any variable counts as set: the node has other variables than this machine.
        words(trial, NewJobCfg.flags, defaultdict(str))
        yield trial


QUOTED = re.compile(r"""'[^']*'|"[^"$`]*"|\\.""")


def notes_on(cfg: Config, trials: list[Config]) -> Iterator[str]:
    """Yield notes on commands that differ from what a user of Isaac Lab may expect."""
    if unused := [key for key in cfg if key not in SECTIONS]:
        yield (
            f"{', '.join(unused)}: not in the command, as in Isaac Lab. Functions of the class "
            "can read it."
        )

    given = {
        (section, key, value)
        for trial in trials
        for section in SECTIONS
        for key, value in trial[section].items()
        if isinstance(value, str) and not (section == "hydra_args" and re.search("[{}]", value))
    }
    for section, key, value in sorted(given):
        if any(
            found[1] or found[2] or (found[3] and section != "hydra_args")
            for found in VARIABLE.finditer(value)
        ):
            yield f"{key} {value}: variables and ~ are those of the node."
        if re.search(r"[`;&|<>]|\$\(", QUOTED.sub("", value)):
            yield f"{key} {value}: no shell reads it here, and the training is given these signs."


def watched() -> list[str]:
    """Return a list that grows by each path that this process opens for reading."""
    opened: list[str] = []

    def hook(event: str, given: tuple[Any, ...]) -> None:
        if (
            event == "open"
            and isinstance(given[0], (str, bytes))
            and not given[2] & (os.O_WRONLY | os.O_RDWR)
        ):
            opened.append(os.fsdecode(given[0]))

    sys.addaudithook(hook)
    return opened


# Top directories of the system, which a node has as well: their files are not needed.
SYSTEM = [("usr",), ("etc",), ("proc",), ("sys",), ("dev",), ("lib",)]


def needed(directory: Path, opened: Sequence[str]) -> tuple[set[Path], set[Path]]:
    """Return the files that a cfg file needs: those near it, which are copied, and others."""
    near = set(imported(directory))
    away = set[Path]()
    for path in map(Path, opened):
        if not path.is_file() or path.suffix in (".py", ".pyc") or is_installed(path.resolve()):
            continue
        # A relative path is not copied: on the node, the program starts in another directory.
        if path.is_absolute() and is_near(path.resolve(), directory):
            near.add(path.resolve())
        elif not any(part.startswith(".") for part in path.parts) and path.parts[1:2] not in SYSTEM:
            away.add(path)
    return near, away


def may_end_sweep(stopper: object) -> bool:
    """Say whether a stopper's `stop_all` does more than return False."""
    if isinstance(stopper, CombinedStopper):
        return any(may_end_sweep(each) for each in stopper.stoppers)
    code = getattr(getattr(type(stopper), "stop_all", None), "__code__", None)
    # The code of `return False` has no names, and only False, None and a docstring as constants.
    return code is not None and (bool(code.co_names) or True in code.co_consts)


# A file without any of these words draws no random values. To try its functions would not tell:
# they may draw only for some values of the search.
CHANCE = re.compile(r"random|default_rng|secrets|uuid|torch\.rand|\.sample\(")


def may_draw(files: Iterable[Path]) -> bool:
    return any(CHANCE.search(path.read_text(encoding="utf-8", errors="replace")) for path in files)


def imported(directory: Path) -> Iterator[Path]:
    """Yield the files of imported modules below `directory`, or directly in its parent."""
    for module in list(sys.modules.values()):
        path = place(getattr(module, "__file__", None) or "/")
        if is_near(path, directory) and not is_installed(path) and path != Path(__file__).resolve():
            yield path


@functools.cache
def place(file: str) -> Path:
    """Resolve a path; cached, since a thousand modules are asked repeatedly."""
    return Path(file).resolve()


def is_near(path: Path, directory: Path) -> bool:
    return path.is_relative_to(directory) or path.parent == directory.parent


@functools.cache
def is_installed(path: Path) -> bool:
    return path.is_relative_to(sys.prefix) or path.is_relative_to(sys.base_prefix)


def command_of(asked: argparse.Namespace, module: types.ModuleType) -> list[str]:
    """Return the command of one trial, with the values of the search."""
    made, cfg = config_of(module, asked.cfg_class)
    if asked.rl_library or issubclass(made, NewJobCfg):
        generation = NewJobCfg
    else:
        generation = OldJobCfg
    if asked.rl_library:
        cfg["runner_args"]["--rl_library"] = asked.rl_library
    if generation is NewJobCfg:
        cfg["runner_args"]["-rid"] = process_mark()
    values = dict(value.split("=", 1) for value in asked.values)
    workflow = str(Path(ISAAC_LAB, asked.workflow or generation.workflow))
    trial = resolved(cfg, values, asked.draw)
    return [*shlex.split(asked.python), workflow, *words(trial, generation.flags, os.environ)]


def main(given: list[str]) -> None:
    """Run the action `space`, `run` or `resume`."""
    asked = arguments(given)
    if asked.action == "space":
        try:
            found = described(asked, watched())
        except Exception as error:
            why = " ".join(f"{type(error).__name__}: {error}".split())
            if isinstance(error, ImportError) and (error.name or "").partition(".")[0] in STOOD_FOR:
                why += f". {HAD_HERE}"
            sys.exit(f"{PROGRAM}: {Path(asked.cfg_file).name} cannot be loaded: {why}")

        # Begins with a newline: the file's own output may not end with one.
        print(f"\n{PROGRAM}: {json.dumps(found)}")
        return

    module = None
    if asked.action == "run":
        module = load(Path(asked.cfg_file))

    command = continued(command_of(asked, module) if module else asked.values)
    print(json.dumps(command) if asked.print else f"+ {shlex.join(command)}", flush=True)
    if asked.print:
        return

    if module and asked.stopper:
        sys.exit(
            stopped_early(
                command, member(module, asked.stopper, Stopper, "stopper")(), asked.stopper
            )
        )

    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
