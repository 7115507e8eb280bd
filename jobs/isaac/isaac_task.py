"""Run one training of Isaac Lab: a trial of its JobCfg class, or any command, again from its newest checkpoint.

    python isaac_task.py space --cfg_file FILE [--cfg_class NAME]     print what the class varies, as JSON
    python isaac_task.py run --cfg_file FILE --cfg_class NAME -- NAME=VALUE...
    python isaac_task.py resume -- COMMAND...

`train.import` copies this file beside Isaac Lab's own, which it loads with stand-ins for `ray.tune`, `tuner`
and `util`; neither Ray Tune nor Isaac Lab is needed for that. Standard library only; Python 3.10 or newer.
"""

from __future__ import annotations

import argparse
import contextlib
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
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROGRAM = "isaac_task.py"
ISAAC_LAB = "/workspace/isaaclab/"
SECTIONS = ("runner_args", "hydra_args")
# What each library's trainings leave, below logs/LIBRARY/.
CHECKPOINTS = {"rl_games": "nn/*.pth", "rsl_rl": "model_*.pt", "skrl": "checkpoints/*.pt", "sb3": "model*.zip"}
POLL_SECONDS = 2.0
GRACE_SECONDS = 20.0
Config = dict[str, dict[str, Any]]


# ---- what `ray.tune` offers ----


@dataclass
class Domain:
    """What one of Ray Tune's functions returned; `kind` and `of` are as in `tune.space`: options, or both ends."""

    kind: str
    of: list[Any]
    step: float | None = None
    function: Callable[..., Any] | None = None

    @property
    def varies(self) -> bool:
        """Say whether the search has something to choose: one option is no choice."""
        return self.function is None and len(set(map(as_text, self.of))) > 1

    def sample(self, *_: Any) -> Any:
        """Return a value, as Ray Tune draws it."""
        if self.kind in ("choice", "grid"):
            return random.choice(self.of)
        low, high = self.of
        if self.kind == "randint":
            return random.randrange(low, high + 1, self.step or 1)
        if self.kind in ("loguniform", "lograndint"):
            value = math.exp(random.uniform(math.log(low), math.log(high)))
            return value if self.kind == "loguniform" else round(value)
        value = random.uniform(low, high)
        return round(value / self.step) * self.step if self.step else value

    def entry(self) -> dict[str, Any]:
        """Return what stands for it in a job file's `tune.space`."""
        of = [value if isinstance(value, (str, int, float)) else as_text(value) for value in self.of]
        return {self.kind: of, **({"step": self.step} if self.step else {})}

    def read(self, text: str) -> Any:
        """Return the value that a text of the search stands for."""
        if self.kind in ("choice", "grid"):
            return {as_text(option): option for option in self.of}[text]
        return int(text) if self.kind in ("randint", "lograndint") else float(text)


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
    "qloguniform": "has steps and a logarithm, and Optuna takes one of the two: use loguniform or quniform",
    "qlograndint": "has steps and a logarithm, and Optuna takes one of the two: use lograndint or qrandint",
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
    return json.dumps(value) if isinstance(value, (list, tuple, dict)) else str(value)


class Stopper:
    """What a cfg file's stopper derives from. Each trial has one of its own; nobody asks `stop_all`."""

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
            is_short = value > self._threshold if self._mode == "min" else value < self._threshold
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

    __init__ = refused("stopper.TimeoutStopper", "ends a whole sweep: here `tune.time` of the job file does")


class ExperimentPlateauStopper(Stopper):
    """Ray's end of a whole sweep."""

    __init__ = refused("stopper.ExperimentPlateauStopper", "ends a whole sweep: here `tune.stop.plateau` does")


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
    """What a cfg file's progress reporter derives from: only its columns are read."""

    def __init__(self, *_: Any, metric_columns: Any = (), **__: Any) -> None:
        self.columns = list(metric_columns or ())


class OldJobCfg:
    """What a sweep derives from; the result is `cfg`."""

    workflow = "scripts/reinforcement_learning/rl_games/train.py"
    flags = "--"  # how they begin

    def __init__(self, cfg: Config) -> None:
        if "--task" not in cfg.get("runner_args", {}) or "hydra_args" not in cfg:
            sys.exit(f"{PROGRAM}: a JobCfg class needs runner_args with --task, and hydra_args")
        refuse_nested_domains(cfg)
        self.cfg = cfg


class NewJobCfg(OldJobCfg):
    """The same in isaaclab_contrib: every training is of one workflow, which is told the library."""

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
    """Make the modules that a cfg file in this directory imports, of both generations; they win over installed ones."""
    reporters = dict.fromkeys(("ProgressReporter", "CLIReporter", "JupyterNotebookReporter"), ProgressReporter)
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
    known = {key: value for key, value in classes.items() if issubclass(value, base) and value.__module__ != __name__}
    own = [key for key, value in known.items() if value.__module__ == module.__name__]
    name = own[0] if name is None and len(own) == 1 else name
    if name not in known:
        wrong = f"the file has no {what} {name}" if name else f"which {what} is meant? Give --cfg-class"
        sys.exit(f"{PROGRAM}: {wrong} (it has: {', '.join(known) or 'none'})")
    return known[name]


def seed(number: int) -> None:
    random.seed(number)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(number % 2**32)


def refuse_nested_domains(cfg: Config) -> None:
    """End where something inside a list or mapping is to be chosen: only a whole value can be searched here."""
    nested = [key for section in SECTIONS for key, value in cfg[section].items() if _holds_a_domain(value)]
    if nested:
        sys.exit(f"{PROGRAM}: a choice inside a list or mapping cannot be searched: {', '.join(nested)}")


def _holds_a_domain(value: object) -> bool:
    if isinstance(value, dict):
        value = list(value.values())
    if not isinstance(value, (list, tuple, set)):
        return False
    return any(isinstance(inner, Domain) or _holds_a_domain(inner) for inner in value)


def domains(cfg: Config) -> Iterator[tuple[str, str, Domain]]:
    for section in SECTIONS:
        for key, value in cfg[section].items():
            if isinstance(value, Domain):
                yield section, key, value


def searched(cfg: Config) -> dict[str, tuple[str, str, Domain]]:
    """Return by its short name what the search chooses: section, key and domain."""
    named: dict[str, tuple[str, str, Domain]] = {}
    for section, key, domain in domains(cfg):
        if domain.varies:
            parts = re.sub(r"[^A-Za-z0-9_.]", "_", key.lstrip("-")).split(".")
            names = ["_".join(parts[-length:]) for length in range(1, len(parts) + 1)]
            # Two names a sweep has already.
            taken = {*named, "draw", "repeat"}
            free = (name for name in names if name not in taken and re.match("[A-Za-z_]", name))
            named[next(free, f"p{len(named)}")] = (section, key, domain)
    return named


def resolved(cfg: Config, values: dict[str, str], draw: int) -> Config:
    """Return the configuration of one trial: what the search chose, and what functions of the file make of it.

    `draw` seeds what those functions draw: the same for each repeat and each attempt of a trial.
    """
    # A copy keeps the order: that of the words is that of the keys.
    result = {section: dict(content) for section, content in cfg.items()}
    for section, key, domain in domains(cfg):
        if not domain.varies and domain.function is None:
            result[section][key] = domain.sample()
    for name, (section, key, domain) in searched(cfg).items():
        result[section][key] = domain.read(values[name])
    seed(draw)
    functions = {(section, key): domain.function for section, key, domain in domains(cfg) if domain.function}
    while functions:
        later = call(functions, result)
        if len(later) == len(functions):
            names = ", ".join(key for _, key in later)
            sys.exit(f"{PROGRAM}: each of these functions waits for what another one makes: {names}")
        functions = later
    return result


Functions = dict[tuple[str, str], Callable[..., Any]]


class NotMadeError(Exception):
    """A function reads what another function has not made yet."""


class Made(dict[str, Any]):
    """A configuration as functions read it, by keys or attributes: what is still to be made is not there yet."""

    def __getitem__(self, key: str) -> Any:
        value = super().__getitem__(key)
        if isinstance(value, Domain):
            raise NotMadeError(key)
        return Made(value) if isinstance(value, dict) else value

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
    """Let functions make their values, and return those that have to wait for others, as Ray Tune does in passes."""
    later: Functions = {}
    for (section, key), function in functions.items():
        try:
            result[section][key] = value_of(function, result)
        except NotMadeError:
            later[section, key] = function
        except Exception as error:
            given = f"it is given a dictionary with {' and '.join(SECTIONS)}"
            sys.exit(f"{PROGRAM}: the function of {key} failed: {type(error).__name__}: {error}; {given}")
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


def words(config: Config, flags: str) -> list[str]:
    """Return what Isaac Lab hands to a workflow, as words: it makes a shell line of them, where quotes keep a word."""
    runner: list[str] = []
    for key, value in config["runner_args"].items():
        flag = [key] if key.startswith(flags) and not key.endswith("_singleton") else []
        runner += [*flag, *shlex.split(str(value))]
    return [*runner, *(f"{key}={hydra_text(value)}" for key, value in config["hydra_args"].items())]


def hydra_text(value: Any) -> str:
    if not isinstance(value, list):
        return str(value)
    of_dicts = bool(value) and isinstance(value[0], dict)
    items = ["{" + ",".join(f"{k}:{v}" for k, v in item.items()) + "}" if of_dicts else str(item) for item in value]
    return f"[{','.join(items)}]"


def process_mark() -> str:
    """Return ten digits that are this task's: newer workflows take them as -rid and do nothing with them."""
    task = f"{os.environ.get('TRAINYARD_RUN', '')}:{os.environ.get('TRAINYARD_TASK', '')}"
    return str(10**9 + int(hashlib.sha256(task.encode()).hexdigest(), 16) % (9 * 10**9))


def continued(command: list[str]) -> list[str]:
    """Return a training's command; in a later attempt it goes on from what the one before left below logs/."""
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
    return [*command, "--resume"] if library == "rsl_rl" else [*command, "--checkpoint", str(newest.resolve())]


# ---- stoppers ----


def rounds(logs: Path, goes_on: Callable[[], bool]) -> Iterator[dict[str, Any]]:
    """Yield the newest scalars of event files after each round, by the names that Isaac Lab's tuner gives them.

    A round begins when any scalar is written once more than all were before.
    """
    # A file of Trainyard's runner, which lies beside this one where a stopper is used.
    from event_files import scalars

    began, read, counts, latest = time.monotonic(), Counter[Path](), Counter[str](), {}
    while goes_on():
        for path in sorted(logs.rglob("*.tfevents.*")):
            with path.open("rb") as file:
                file.seek(read[path])
                for tag, _, value, _ in scalars(file):
                    name = re.sub(r"_+", "_", re.sub(r"[^0-9A-Za-z_./]", "_", tag)).strip("_")
                    if counts[name] == (done := max(counts.values(), default=0)) > 0:
                        yield {**latest, "training_iteration": done, "time_total_s": time.monotonic() - began}
                    counts[name] += 1
                    latest[name] = value
                read[path] = file.tell()


def stopped_early(command: list[str], stopper: Callable[..., bool], name: str) -> int:
    """Run a command until it ends, or until the stopper wants it ended, which is a good end. Returns its exit code."""
    process = subprocess.Popen(command, start_new_session=True)

    def goes_on(seconds: float = POLL_SECONDS) -> bool:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
        return process.returncode is None

    for result in rounds(Path("logs"), goes_on):
        if stopper(os.environ.get("TRAINYARD_TASK", "trial"), result):
            print(f"{name} ended this trial in iteration {result['training_iteration']}", flush=True)
            # isaaclab.sh does not hand it on to Python. What still runs after its time, Trainyard's runner ends.
            os.killpg(process.pid, signal.SIGTERM)
            goes_on(GRACE_SECONDS)
            return 0
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


# ---- the commands ----


def arguments(given: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["space", "run", "resume"])
    for flag in ("--cfg_file", "--cfg_class", "--stopper", "--progress_reporter", "--workflow", "--rl_library"):
        parser.add_argument(flag)
    parser.add_argument("--python", default=f"{ISAAC_LAB}isaaclab.sh -p")
    parser.add_argument("--draw", type=int, default=0, help="seeds what the file itself draws for this trial")
    parser.add_argument("--print", action="store_true", help="print the command as JSON instead of running it")
    split = given.index("--") if "--" in given else len(given)
    return parser.parse_args(given[:split], argparse.Namespace(values=given[split + 1 :]))


def described(asked: argparse.Namespace) -> dict[str, Any]:
    """Return what a class varies, which files it needs, and whether it draws anything itself."""
    file = Path(asked.cfg_file).resolve()
    module = load(file)
    made = member(module, asked.cfg_class, OldJobCfg, "JobCfg class")
    stopper = member(module, asked.stopper, Stopper, "stopper")() if asked.stopper else None
    reporter = None
    if asked.progress_reporter:
        reporter = member(module, asked.progress_reporter, ProgressReporter, "progress reporter")()
    cfg = made().cfg
    return {
        "ends_sweep": may_end_sweep(stopper),
        "columns": reporter.columns if reporter else [],
        "cfg_class": made.__name__,
        "space": {name: domain.entry() for name, (_, _, domain) in searched(cfg).items()},
        "draws": draws(cfg),
        "files": sorted(str(path.relative_to(file.parent.parent)) for path in imported(file.parent)),
    }


def may_end_sweep(stopper: object) -> bool:
    """Say whether a stopper's `stop_all` does more than to answer no."""
    if isinstance(stopper, CombinedStopper):
        return any(may_end_sweep(each) for each in stopper.stoppers)
    code = getattr(getattr(type(stopper), "stop_all", None), "__code__", None)
    # One that answers False has no names, and no other constant than that, None and its docstring.
    return code is not None and (bool(code.co_names) or True in code.co_consts)


def draws(cfg: Config) -> bool:
    """Tell whether functions of the file draw by themselves: whether another seed gives another trial."""
    values = {name: as_text(domain.sample()) for name, (_, _, domain) in searched(cfg).items()}
    return any(resolved(cfg, values, draw) != resolved(cfg, values, 0) for draw in range(1, 10))


def imported(directory: Path) -> Iterator[Path]:
    """Yield the files below a directory, or directly in the one above, that were imported from there."""
    for module in list(sys.modules.values()):
        path = Path(getattr(module, "__file__", None) or "/").resolve()
        is_installed = path.is_relative_to(sys.prefix) or path.is_relative_to(sys.base_prefix)
        is_near = path.is_relative_to(directory) or path.parent == directory.parent
        if is_near and not is_installed and path != Path(__file__).resolve():
            yield path


def command_of(asked: argparse.Namespace, module: types.ModuleType) -> list[str]:
    """Return the command of one trial."""
    job = member(module, asked.cfg_class, OldJobCfg, "JobCfg class")()
    generation = NewJobCfg if asked.rl_library or isinstance(job, NewJobCfg) else OldJobCfg
    if asked.rl_library:
        job.cfg["runner_args"]["--rl_library"] = asked.rl_library
    if generation is NewJobCfg:
        job.cfg["runner_args"]["-rid"] = process_mark()
    values = dict(value.split("=", 1) for value in asked.values)
    workflow = str(Path(ISAAC_LAB, asked.workflow or generation.workflow))
    return [*shlex.split(asked.python), workflow, *words(resolved(job.cfg, values, asked.draw), generation.flags)]


def main(given: list[str]) -> None:
    """Do what was asked."""
    asked = arguments(given)
    if asked.action == "space":
        print(json.dumps(described(asked)))
        return
    module = load(Path(asked.cfg_file)) if asked.action == "run" else None
    command = continued(command_of(asked, module) if module else asked.values)
    print(json.dumps(command) if asked.print else f"+ {shlex.join(command)}", flush=True)
    if asked.print:
        return
    if module and asked.stopper:
        sys.exit(stopped_early(command, member(module, asked.stopper, Stopper, "stopper")(), asked.stopper))
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
