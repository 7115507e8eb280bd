"""Run one training of Isaac Lab: a trial of its JobCfg class, or any command, again from its newest
checkpoint.

    python isaac_task.py space --cfg_file FILE [--cfg_class NAME]     print what the class varies, as JSON
    python isaac_task.py run --cfg_file FILE --cfg_class NAME -- NAME=VALUE...
    python isaac_task.py resume -- COMMAND...

`train.import` copies this file beside Isaac Lab's own, which it loads with stand-ins for
`ray.tune`, `tuner` and `util`; neither Ray Tune nor Isaac Lab is needed for that. Standard library
only; Python 3.10 or newer.
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
# The files that each library's trainings leave, below logs/LIBRARY/.
CHECKPOINTS = {
    "rl_games": "nn/*.pth",
    "rsl_rl": "model_*.pt",
    "skrl": "checkpoints/*.pt",
    "sb3": "model*.zip",
}
POLL_SECONDS = 2.0
GRACE_SECONDS = 20.0
# Samples of the space that are made at import, to find what no training can be given.
TRIED = 12
Config = dict[str, Any]
Place = tuple[str, ...]  # the keys that lead to a value


# ---- what `ray.tune` offers ----


@dataclass
class Domain:
    """The result of one of Ray Tune's functions, as in `tune.space`.

    `kind` is its key there, `of` the options, or both ends.
    """

    kind: str
    of: list[Any]
    step: float | None = None
    function: Callable[..., Any] | None = None

    @property
    def varies(self) -> bool:
        """Say whether the search has something to choose: one option is no choice."""
        return self.function is None and len(set(map(as_text, self.of))) > 1

    def quantized(self, q: float) -> Domain:
        """Return the same with steps, as Ray Tune's quniform and qrandint are made."""
        if self.kind not in ("uniform", "randint"):
            refused(
                f"{self.kind}(...).quantized",
                "cannot be searched: quniform and qrandint have steps",
            )()
        # Quantised, an integer's upper end is one of its values.
        return Domain(self.kind, [self.of[0], self.of[1] + (self.kind == "randint")], q)

    def sample(self, config: Any = None, *_: Any) -> Any:
        """Return a value, as Ray Tune draws it: a function is called with the configuration that is
        given.
        """
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
        """Return what stands for it in a job file's `tune.space`."""
        of = [
            value if isinstance(value, (str, int, float)) else as_text(value) for value in self.of
        ]
        return {self.kind: of, **({"step": self.step} if self.step else {})}

    def read(self, text: str) -> Any:
        """Return the value that a text of the search stands for."""
        if self.kind in ("choice", "grid"):
            return {as_text(option): option for option in self.of}[text]
        if self.kind in ("randint", "lograndint"):
            return int(text)
        return float(text)


# Ray leaves the upper end of an integer out, unless it is quantised.
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
# Those that have no counterpart in Optuna, and the reason.
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
    """Return what ends this program where a file of Isaac Lab's calls it."""

    def end(*_: Any, **__: Any) -> None:
        sys.exit(f"{PROGRAM}: tune.{name} {why}")

    return end


def as_text(value: Any) -> str:
    """Return a value as a placeholder of a job file writes it; a list or dict as JSON."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple, dict)):
        return json.dumps(value, default=str)
    return str(value)


class Stopper:
    """The base class of a cfg file's stopper; each trial has one, and `stop_all` is not called."""

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return False


class MaximumIterationStopper(Stopper):
    """Ends a trial with its last iteration."""

    def __init__(self, max_iter: int) -> None:
        self._left = max_iter

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        self._left -= 1
        return self._left <= 0


class TrialPlateauStopper(Stopper):
    """Ends a trial whose latest values of a metric hardly differ."""

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
    """Ray's end of a whole sweep."""

    __init__ = refused(
        "stopper.TimeoutStopper", "ends a whole sweep: here `tune.time` of the job file does"
    )


class ExperimentPlateauStopper(Stopper):
    """Ray's end of a whole sweep."""

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
    """The base class of a cfg file's progress reporter: only its columns are read."""

    def __init__(self, *_: Any, metric_columns: Any = (), **__: Any) -> None:
        self.columns = list(metric_columns or ())


class OldJobCfg:
    """The base class of sweeps; the result is `cfg`."""

    workflow = "scripts/reinforcement_learning/rl_games/train.py"
    flags = "--"  # how they begin

    def __init__(self, cfg: Config) -> None:
        if "--task" not in cfg.get("runner_args", {}) or "hydra_args" not in cfg:
            sys.exit(f"{PROGRAM}: a JobCfg class needs runner_args with --task, and hydra_args")
        self.cfg = cfg


class NewJobCfg(OldJobCfg):
    """The same in isaaclab_contrib: every training is of one workflow, which is told the
    library.
    """

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
    """Make the modules that a cfg file in this directory imports, of both generations; they win
    over installed ones.
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
    """Run a cfg file as Isaac Lab's tuner does: its directory and the one above on the path."""
    directory = file.resolve().parent
    stand_ins(directory)
    sys.path[:0] = [str(directory), str(directory.parent)]
    seed(0)
    return importlib.import_module(file.stem)


def member(module: types.ModuleType, name: str | None, base: type, what: str) -> type:
    """Return the class of a file that has this name, or the only one of its own."""
    classes = {key: value for key, value in vars(module).items() if inspect.isclass(value)}
    # Without the bases, which are of this program.
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
    """Seed what a file can draw from, also generators of its own: each trial would get the same
    from them.
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
    """Yield what has a name in the modules that are not installed: the file, and what it imports
    from near it.
    """
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file and not is_installed(place(file)):
            yield from list(vars(module).values())


def config_of(module: types.ModuleType, name: str | None) -> tuple[type, Config]:
    """Return a JobCfg class and what one of it holds once it is made, as far as a search can take
    it.
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
    """Yield each value of a configuration and its place: the whole of what a word of the command is
    made of.
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
    """Say whether it is a mapping of this key alone: Ray Tune's own forms of a domain."""
    return isinstance(value, dict) and set(value) == {key}


def put(config: Config, place: Place, value: Any) -> None:
    for key in place[:-1]:
        config = config[key]
    config[place[-1]] = value


def named(place: Place) -> str:
    """Return a place as a user knows it: the key of a runner's or of Hydra's argument, else all
    keys.
    """
    if place[0] in SECTIONS:
        return str(place[1])
    return ".".join(map(str, place))


def refuse_unfit(config: Config, *, is_made: bool = False) -> None:
    """End where a value would reach a training as the text of an object; `is_made` after all have
    been chosen.
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
# Also where no word of the command is made of it: Ray Tune would choose, and functions read what it
# chose.
SEARCHED = (NESTED, EVAL, "there is nothing to choose from")


def unfit(part: Any, *, is_whole: bool) -> str:
    """Return why a value, or what is inside of one, cannot be given to a training, or nothing."""
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
    # Python's own text for an object without one: another one in each process.
    if re.search(r" at 0x[0-9a-f]+>$", str(part)):
        return "an object without a text of its own"

    return ""


def parts(value: Any) -> Iterator[Any]:
    """Yield a value and all that is inside: of a list, a mapping, or the options of a choice."""
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
    """Return by its short name what the search chooses: where it is, and its domain."""
    found: dict[str, tuple[Place, Domain]] = {}
    for place, domain in domains(cfg):
        if domain.varies:
            words_of_it = re.sub(r"[^A-Za-z0-9_.]", "_", named(place).lstrip("-")).split(".")
            names = ["_".join(words_of_it[-length:]) for length in range(1, len(words_of_it) + 1)]
            # Two names a sweep has already.
            taken = {*found, "draw", "repeat"}
            free = (name for name in names if name not in taken and re.match("[A-Za-z_]", name))
            found[next(free, f"p{len(found)}")] = (place, domain)
    return found


def resolved(cfg: Config, values: dict[str, str], draw: int) -> Config:
    """Return the configuration of one trial: what the search chose, and what functions of the file
    make of it.

    `draw` seeds what those functions draw: the same for each repeat and each attempt of a trial.
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
    """Return a copy of all mappings in their order: that of the words is that of the keys."""
    result = copy.copy(tree)
    for key, value in tree.items():
        if isinstance(value, dict):
            result[key] = copied(value)
    return result


Functions = dict[Place, Callable[..., Any]]


class NotMadeError(Exception):
    """A function reads what another function has not made yet."""


class Made(dict[str, Any]):
    """A configuration as functions read it, by keys or attributes: what is still to be made is not
    there yet.
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
    """Let functions make their values, and return those that have to wait for others, as Ray Tune
    does in passes.
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
        # Ray Tune's older form: sample_from(lambda spec: spec.config...).
        with contextlib.suppress(AttributeError, KeyError):
            return function(Made(config=config))
        raise error


# ---- a command line ----


def words(config: Config, flags: str, environ: Mapping[str, str]) -> list[str]:
    """Return what Isaac Lab hands to a workflow, as words: it makes a shell line of them, where
    quotes keep a word.
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
    """Return the word that a shell makes of what Isaac Lab writes for a value of Hydra's (util.py,
    process_args).
    """
    written = f"{key}={hydra_text(value)}"
    if not isinstance(value, (str, list)):
        return written

    if isinstance(value, list) or re.search("[{}]", value):
        written = f"'{written}'"
    elif not SHELL_QUOTES.search(value):
        # A value with spaces is one word here, where Isaac Lab's shell would make several of it.
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
# No variable is in single quotes, or behind a backslash.
VARIABLE = re.compile(r"'[^']*'|\\.|\$([A-Za-z_]\w*)|\$\{([A-Za-z_]\w*)\}|(?<!\S)(~)(?=[/\s]|$)")


def expanded(key: str, text: str, environ: Mapping[str, str], *, home: bool = True) -> str:
    """Return a value with the node's variables and home directory, as Isaac Lab's shell reads
    it.
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
    """Return ten digits that are this task's: newer workflows take them as -rid and do nothing with
    them.
    """
    task = f"{os.environ.get('TRAINYARD_RUN', '')}:{os.environ.get('TRAINYARD_TASK', '')}"
    return str(10**9 + int(hashlib.sha256(task.encode()).hexdigest(), 16) % (9 * 10**9))


def continued(command: list[str]) -> list[str]:
    """Return a training's command; in a later attempt it continues from the last one's logs/."""
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
        # The workflow of all libraries finds it by itself.
        return [*command, "--checkpoint", "latest"]
    if library == "rsl_rl":
        return [*command, "--resume"]

    return [*command, "--checkpoint", str(newest.resolve())]


# ---- stoppers ----


def rounds(logs: Path, goes_on: Callable[[], bool]) -> Iterator[dict[str, Any]]:
    """Yield the newest scalars of event files after each round, by the names that Isaac Lab's tuner
    gives them.

    A round begins when any scalar is written once more than all were before.
    """
    # A file of Trainyard's runner, which lies beside this one where a stopper is used.
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
    """Run a command until it ends, or until the stopper wants it ended, which is a good end.
    Returns its exit code.
    """
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
            # isaaclab.sh does not pass it on to Python. Trainyard's runner ends a training that still
            # runs after its time.
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
    "file's `tune` stand for searchers and schedulers"
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
    """Return what a class varies, which files it needs, and whether it draws anything itself.

    `opened` are the paths that this process has opened by then.
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
    """Yield some of the trials that a search can make; what no training can be given ends this
    program.
    """
    for number in range(1, TRIED + 1):
        values = {name: as_text(domain.sample()) for name, (_, domain) in searched(cfg).items()}
        trial = resolved(cfg, values, number)
        # A value for each variable: those of this machine say nothing.
        words(trial, NewJobCfg.flags, defaultdict(str))
        yield trial


QUOTED = re.compile(r"""'[^']*'|"[^"$`]*"|\\.""")


def notes_on(cfg: Config, trials: list[Config]) -> Iterator[str]:
    """Yield what a user would not expect of the commands that are made of a class."""
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
    """Return a list that gets the path of each file that this process opens to read, from now
    on.
    """
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


# Directories that a node has, too.
SYSTEM = [("usr",), ("etc",), ("proc",), ("sys",), ("dev",), ("lib",)]


def needed(directory: Path, opened: Sequence[str]) -> tuple[set[Path], set[Path]]:
    """Return which files a cfg file in this directory needs: those near it, which go with the job,
    and others.
    """
    near = set(imported(directory))
    away = set[Path]()
    for path in map(Path, opened):
        if not path.is_file() or path.suffix in (".py", ".pyc") or is_installed(path.resolve()):
            continue
        # The directory in which a program is started is another one on the node.
        if path.is_absolute() and is_near(path.resolve(), directory):
            near.add(path.resolve())
        elif not any(part.startswith(".") for part in path.parts) and path.parts[1:2] not in SYSTEM:
            away.add(path)
    return near, away


def may_end_sweep(stopper: object) -> bool:
    """Say whether a stopper's `stop_all` does more than to answer no."""
    if isinstance(stopper, CombinedStopper):
        return any(may_end_sweep(each) for each in stopper.stoppers)
    code = getattr(getattr(type(stopper), "stop_all", None), "__code__", None)
    # One that answers False has no names, and no other constant than that, None and its docstring.
    return code is not None and (bool(code.co_names) or True in code.co_consts)


# Where a file says none of these, its functions draw nothing. Trying them does not tell: one may
# draw for few of the values that a search chooses.
CHANCE = re.compile(r"random|default_rng|secrets|uuid|torch\.rand|\.sample\(")


def may_draw(files: Iterable[Path]) -> bool:
    return any(CHANCE.search(path.read_text(encoding="utf-8", errors="replace")) for path in files)


def imported(directory: Path) -> Iterator[Path]:
    """Yield the files below a directory, or directly in the one above, that were imported from
    there.
    """
    for module in list(sys.modules.values()):
        path = place(getattr(module, "__file__", None) or "/")
        if is_near(path, directory) and not is_installed(path) and path != Path(__file__).resolve():
            yield path


@functools.cache
def place(file: str) -> Path:
    """Return where a module's file really is; the same thousand modules are asked about several
    times.
    """
    return Path(file).resolve()


def is_near(path: Path, directory: Path) -> bool:
    return path.is_relative_to(directory) or path.parent == directory.parent


@functools.cache
def is_installed(path: Path) -> bool:
    return path.is_relative_to(sys.prefix) or path.is_relative_to(sys.base_prefix)


def command_of(asked: argparse.Namespace, module: types.ModuleType) -> list[str]:
    """Return the command of one trial."""
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
    """Do what was asked."""
    asked = arguments(given)
    if asked.action == "space":
        try:
            found = described(asked, watched())
        except Exception as error:
            why = " ".join(f"{type(error).__name__}: {error}".split())
            if isinstance(error, ImportError) and (error.name or "").partition(".")[0] in STOOD_FOR:
                why += f". {HAD_HERE}"
            sys.exit(f"{PROGRAM}: {Path(asked.cfg_file).name} cannot be loaded: {why}")

        # The file's own output may lack the end of its line.
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
