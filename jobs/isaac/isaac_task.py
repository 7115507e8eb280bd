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
import difflib
import hashlib
import importlib.util
import inspect
import json
import math
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ISAAC_LAB = "/workspace/isaaclab/"
WORKFLOWS = {
    "old": "scripts/reinforcement_learning/rl_games/train.py",
    "new": "scripts/reinforcement_learning/train.py",
}
# What each library's trainings leave, below logs/LIBRARY/.
CHECKPOINTS = {"rl_games": "nn/*.pth", "rsl_rl": "model_*.pt", "skrl": "checkpoints/*.pt", "sb3": "model*.zip"}
# What a sweep's placeholders mean already.
RESERVED = ("draw", "repeat")
POLL_SECONDS = 2.0
GRACE_SECONDS = 20.0
Config = dict[str, dict[str, Any]]


class Unusable(Exception):
    """The cfg file cannot be used as it is; the message says why."""


# ---- what `ray.tune` offers ----

PARAMETERS = {
    "choice": ("categories",),
    "grid_search": ("values",),
    "sample_from": ("func",),
    "uniform": ("lower", "upper"),
    "quniform": ("lower", "upper", "q"),
    "loguniform": ("lower", "upper", "base"),
    "qloguniform": ("lower", "upper", "q", "base"),
    "randint": ("lower", "upper"),
    "qrandint": ("lower", "upper", "q"),
    "lograndint": ("lower", "upper", "base"),
    "qlograndint": ("lower", "upper", "q", "base"),
    "randn": ("mean", "sd"),
    "qrandn": ("mean", "sd", "q"),
}


class Domain:
    """What one of Ray Tune's functions returned, as it was written."""

    def __init__(self, kind: str, *given: Any, **named: Any) -> None:
        self.kind = kind
        self.given = {**dict(zip(PARAMETERS[kind], given, strict=False)), **named}

    def sample(self, config: Any = None, size: int = 1, random_state: Any = None) -> Any:
        """Return a value, or a list of so many, as Ray Tune draws them."""
        drawn = [self._draw() for _ in range(size)]
        return drawn[0] if size == 1 else drawn

    def _draw(self) -> Any:
        given, kind = self.given, self.kind
        if kind in ("choice", "grid_search"):
            return random.choice(list(given[PARAMETERS[kind][0]]))
        if kind.endswith("randn"):
            value = random.gauss(given.get("mean", 0.0), given.get("sd", 1.0))
        elif kind == "randint":
            return random.randrange(given["lower"], given["upper"])
        elif kind == "qrandint":
            value = random.randint(given["lower"], given["upper"])
        elif "log" in kind:
            value = math.exp(random.uniform(math.log(given["lower"]), math.log(given["upper"])))
        else:
            value = random.uniform(given["lower"], given["upper"])
        value = round(value / given["q"]) * given["q"] if given.get("q") else value
        return int(value) if "int" in kind else value

    def entry(self) -> dict[str, Any]:
        """Return what stands for it in a job file's `tune.space`. Raises Unusable."""
        given, kind = self.given, self.kind
        if kind in ("choice", "grid_search"):
            return {"grid" if kind == "grid_search" else "choice": self.options()}
        if kind.endswith("randn"):
            raise Unusable(f"tune.{kind} has no bounds, and Optuna wants some: write tune.uniform")
        # Ray leaves the upper end of an integer out, unless it is quantised; `tune.space` has both ends.
        upper = given["upper"] - 1 if kind in ("randint", "lograndint") else given["upper"]
        name = "randint" if "int" in kind else "loguniform" if "log" in kind else "uniform"
        entry: dict[str, Any] = {name: [given["lower"], upper]}
        # Ray's own OptunaSearch drops the step of a logarithmic range too: Optuna has no such thing.
        return entry | ({"step": given["q"]} if given.get("q") and "log" not in kind else {})

    def options(self) -> list[Any]:
        return [option if isinstance(option, (str, int, float)) else as_text(option) for option in self._options()]

    def read(self, text: str) -> Any:
        """Return the value that a text of the search stands for. Raises Unusable."""
        if self.kind in ("choice", "grid_search"):
            for option in self._options():
                if as_text(option) == text:
                    return option
            raise Unusable(f"{text!r} is none of {', '.join(map(as_text, self._options()))}")
        return int(float(text)) if "int" in self.kind else float(text)

    def _options(self) -> list[Any]:
        return list(next(iter(self.given.values())))


def as_text(value: Any) -> str:
    """Return a value as a placeholder of a job file writes it; a list or dict as JSON."""
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value) if isinstance(value, (list, tuple, dict)) else str(value)


class Stopper:
    """What a cfg file's stopper derives from."""

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        raise NotImplementedError

    def stop_all(self) -> bool:
        return False


class ProgressReporter:
    """What a cfg file's progress reporter derives from; it is only asked what it was made with."""

    def __init__(self, *_: Any, **options: Any) -> None:
        self.options = options


class OldJobCfg:
    """What a sweep derives from; the result is `cfg`."""

    generation = "old"

    def __init__(self, cfg: Config) -> None:
        if "runner_args" not in cfg or "--task" not in cfg["runner_args"]:
            raise Unusable("runner_args has no --task")
        if "hydra_args" not in cfg:
            raise Unusable("there are no hydra_args")
        self.cfg = cfg


class NewJobCfg(OldJobCfg):
    """The same in isaaclab_contrib: every training is of one workflow, which is told the library."""

    generation = "new"

    def __init__(self, cfg: Config) -> None:
        cfg.get("runner_args", {}).setdefault("--rl_library", "rsl_rl")
        super().__init__(cfg)


def populate_isaac_ray_cfg_args(cfg: Config | None = None) -> Config:
    cfg = {} if cfg is None else cfg
    cfg.setdefault("runner_args", {})
    cfg.setdefault("hydra_args", {})
    return cfg


def stand_in(name: str, path: list[str] | None = None, **content: Any) -> None:
    """Make a module of this name; it wins over an installed one."""
    module = sys.modules[name] = types.ModuleType(name)
    module.__dict__.update(content, __path__=path or [])
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, module)


def stand_ins(directory: Path) -> None:
    """Make the modules that a cfg file in this directory imports, of both generations."""

    def function(kind: str) -> Callable[..., Domain]:
        return lambda *given, **named: Domain(kind, *given, **named)

    reporters = dict.fromkeys(("ProgressReporter", "CLIReporter", "JupyterNotebookReporter"), ProgressReporter)
    stand_in("ray")
    stand_in("ray.tune", **{kind: function(kind) for kind in PARAMETERS}, **reporters, Stopper=Stopper)
    stand_in("ray.tune.stopper", Stopper=Stopper)
    stand_in("ray.tune.progress_reporter", **reporters)
    stand_in("tuner", JobCfg=OldJobCfg)
    stand_in("util", populate_isaac_ray_cfg_args=populate_isaac_ray_cfg_args)
    stand_in("isaaclab_contrib")
    stand_in("isaaclab_contrib.rl")
    stand_in("isaaclab_contrib.rl.ray", [str(directory.parent)])
    stand_in("isaaclab_contrib.rl.ray.tuner", JobCfg=NewJobCfg)
    stand_in("isaaclab_contrib.rl.ray.util", populate_isaac_ray_cfg_args=populate_isaac_ray_cfg_args)
    stand_in("isaaclab_contrib.rl.ray.hyperparameter_tuning", [str(directory)])


# ---- a cfg file, loaded ----


def load(file: Path) -> types.ModuleType:
    """Run a cfg file as Isaac Lab's tuner does: its directory and the one above on the path."""
    directory = file.resolve().parent
    stand_ins(directory)
    sys.path[:0] = [str(directory), str(directory.parent)]
    seed(0)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = sys.modules[file.stem] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except SystemExit as error:
        # Python prints what is no number, and exits with 1.
        code = error.code or 0 if isinstance(error.code, int | None) else f"1: {error.code}"
        raise Unusable(f"{file.name} exits by itself, with exit code {code}") from error
    except Exception as error:
        raise Unusable(f"{file.name} cannot be imported: {type(error).__name__}: {error}") from error
    return module


def member(module: types.ModuleType, name: str | None, base: type, what: str) -> type:
    """Return the class of a file that has this name, or the only one of its kind. Raises Unusable."""
    known = {key: value for key, value in vars(module).items() if inspect.isclass(value) and issubclass(value, base)}
    own = [value for value in known.values() if value.__module__ == module.__name__]
    if name is None and len(own) == 1:
        return own[0]
    if name not in known:
        # Without the base that all derive from.
        usable = [key for key, value in known.items() if value.__module__ != __name__]
        close = difflib.get_close_matches(name or "", usable, n=1)
        meant = f"; did you mean {close[0]!r}?" if close else f" (it has: {', '.join(usable) or 'none'})"
        which = f"which {what} is meant? Give --cfg-class{meant}"
        raise Unusable(f"the file has no {what} {name}{meant}" if name else which)
    return known[name]


def configured(made: type) -> OldJobCfg:
    """Return an instance of a JobCfg class: its search space is in `cfg`. Raises Unusable."""
    try:
        return made()
    except Unusable:
        raise
    except Exception as error:
        raise Unusable(f"{made.__name__}() failed: {type(error).__name__}: {error}") from error


def seed(number: int) -> None:
    random.seed(number)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(number % 2**32)


def entries(cfg: Config) -> Iterator[tuple[str, str, Any]]:
    for section in ("runner_args", "hydra_args"):
        for key, value in cfg[section].items():
            yield section, key, value


def searched(cfg: Config) -> dict[str, tuple[str, str, Domain]]:
    """Return by its short name what the search chooses: section, key and domain. One option is no choice."""
    found = [
        (section, key, value)
        for section, key, value in entries(cfg)
        if isinstance(value, Domain) and value.kind != "sample_from" and constant(value) is None
    ]
    named: dict[str, tuple[str, str, Domain]] = {}
    for section, key, value in found:
        parts = re.sub(r"[^A-Za-z0-9_.]", "_", key.lstrip("-")).split(".")
        names = ("_".join(parts[-length:]) for length in range(1, len(parts) + 1))
        name = next((name for name in names if name not in {*named, *RESERVED} and re.match("[A-Za-z_]", name)), "")
        name = name or f"p{len(named)}"
        named[name] = (section, key, value)
    return named


def constant(domain: Domain) -> list[Any] | None:
    """Return the only value that a domain has, in a list; None if it has several."""
    if domain.kind == "randint":
        options = list(range(domain.given["lower"], domain.given["upper"])[:2])
    else:
        options = domain._options() if domain.kind == "choice" else []
    return options if len(options) == 1 else None


class Access(dict):
    """A configuration as `sample_from` functions read it: by key, and as older ones do, by attribute and `.config`."""

    def __getattr__(self, name: str) -> Any:
        return self if name == "config" and name not in self else self[name]


def resolved(cfg: Config, values: dict[str, str], draw: int) -> Config:
    """Return the configuration of one trial: what the search chose, and what functions of the file make of it.

    `draw` seeds what those functions draw: the same for each repeat and each attempt of a trial.
    """
    known = searched(cfg)
    missing, extra = known.keys() - values, values.keys() - known
    if missing or extra:
        raise Unusable(f"no value for {', '.join(missing)}" if missing else f"there is no {', '.join(extra)} to choose")
    chosen = {(section, key): domain.read(values[name]) for name, (section, key, domain) in known.items()}
    result = Access({section: Access() for section in ("runner_args", "hydra_args")})
    functions = []
    for section, key, value in entries(cfg):
        if isinstance(value, Domain) and value.kind == "sample_from":
            functions.append((section, key, value.given["func"]))
        elif isinstance(value, Domain):
            value = chosen[section, key] if (section, key) in chosen else constant(value)[0]
        # In its place from the start: the order of the words is the order of the keys.
        result[section][key] = value
    seed(draw)
    for section, key, function in functions:
        try:
            result[section][key] = function(result) if inspect.signature(function).parameters else function()
        except Exception as error:
            raise Unusable(f"sample_from of {key} failed: {type(error).__name__}: {error}") from error
    return result


# ---- a command line ----


def words(config: Config, *, python: str, workflow: str, generation: str) -> list[str]:
    """Return what Isaac Lab would run, as words: it makes one shell line of them, in which quotes keep a word whole."""
    dashes = "--" if generation == "old" else "-"
    runner: list[str] = []
    for key, value in config["runner_args"].items():
        flag = [key] if key.startswith(dashes) and not key.endswith("_singleton") else []
        runner += [*flag, *shlex.split(str(value))]
    hydra = [f"{key}={hydra_text(value)}" for key, value in config["hydra_args"].items()]
    return [*shlex.split(python), workflow, *runner, *hydra]


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
    if os.environ.get("TRAINYARD_ATTEMPT", "1") == "1":
        return command
    left = [
        (path.stat().st_mtime, path, library)
        for library, pattern in CHECKPOINTS.items()
        for path in Path("logs", library).rglob(pattern)
    ]
    if not left:
        return command
    _, newest, library = max(left)
    script = next((Path(word) for word in command if Path(word).name == "train.py"), Path())
    if script.parent.name not in CHECKPOINTS:
        # The workflow of all libraries finds it by itself.
        return [*command, "--checkpoint", "latest"]
    return [*command, "--resume"] if library == "rsl_rl" else [*command, "--checkpoint", str(newest.resolve())]


# ---- stoppers: what event files say, round by round ----


class Rounds:
    """What a training has logged: a round begins when any scalar is written once more than all were before."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._read: dict[Path, int] = {}
        self._counts: dict[str, int] = {}
        self._latest: dict[str, float] = {}
        self._began = time.monotonic()

    def new(self) -> Iterator[dict[str, Any]]:
        """Yield the newest scalars after each round that is over by now and was not before."""
        # A file of Trainyard's runner, which lies beside this one where a stopper is used.
        from event_files import scalars

        for path in sorted(self._logs.rglob("*.tfevents.*")):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                for tag, _, value, _ in scalars(file):
                    yield from self._take(as_tuner_writes(tag), value)
                self._read[path] = file.tell()

    def _take(self, tag: str, value: float) -> Iterator[dict[str, Any]]:
        count = self._counts.get(tag, 0) + 1
        done = max(self._counts.values(), default=0)
        if count > done > 0:
            yield {**self._latest, "training_iteration": done, "time_total_s": time.monotonic() - self._began}
        self._counts[tag], self._latest[tag] = count, value


def as_tuner_writes(tag: str) -> str:
    """Return a scalar's name as Isaac Lab's tuner hands it to stoppers."""
    return re.sub(r"_+", "_", re.sub(r"[^0-9A-Za-z_./]", "_", tag)).strip("_")


def stopped_early(command: list[str], stopper: Stopper, name: str) -> int:
    """Run a command until it ends, or until the stopper wants it ended, which is a good end. Returns its exit code."""
    process = subprocess.Popen(command, start_new_session=True)
    rounds, trial = Rounds(Path("logs")), os.environ.get("TRAINYARD_TASK", "trial")
    while process.poll() is None:
        for result in rounds.new():
            if stopper(trial, result):
                print(f"{name} ended this trial in iteration {result['training_iteration']}", flush=True)
                end(process)
                return 0
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(POLL_SECONDS)
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process and its group: isaaclab.sh waits for the Python that it starts."""
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


# ---- the commands ----


def arguments(given: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["space", "run", "resume"])
    for flag in ("--cfg_file", "--cfg_class", "--stopper", "--progress_reporter", "--workflow", "--rl_library"):
        parser.add_argument(flag)
    parser.add_argument("--python", default=f"{ISAAC_LAB}isaaclab.sh -p")
    parser.add_argument("--draw", type=int, default=0, help="seeds what the file itself draws for this trial")
    parser.add_argument("--print", action="store_true", help="print the command as JSON instead of running it")
    parser.epilog = "After `--`: the values NAME=VALUE of a trial, or a command."
    split = given.index("--") if "--" in given else len(given)
    return parser.parse_args(given[:split], argparse.Namespace(values=given[split + 1 :]))


def described(asked: argparse.Namespace) -> dict[str, Any]:
    """Return what a class varies, which files it needs, and whether it draws anything itself."""
    file = Path(asked.cfg_file).resolve()
    module = load(file)
    made = member(module, asked.cfg_class, OldJobCfg, "JobCfg class")
    if asked.stopper:
        member(module, asked.stopper, Stopper, "stopper")
    if asked.progress_reporter:
        reporter = configured(member(module, asked.progress_reporter, ProgressReporter, "progress reporter"))
        if reporter.options.keys() & {"metric", "mode"}:
            raise Unusable(f"{asked.progress_reporter} sets metric or mode: give --metric, --mode instead")
    job = configured(made)
    return {
        "cfg_class": made.__name__,
        "generation": job.generation,
        "rl_library": job.cfg["runner_args"].get("--rl_library"),
        "hydra": list(job.cfg["hydra_args"]),
        "space": {name: domain.entry() for name, (_, _, domain) in searched(job.cfg).items()},
        "draws": draws(job.cfg),
        "files": sorted(
            str(path.relative_to(file.resolve().parent.parent)) for path in imported(file.resolve().parent)
        ),
    }


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
    job = configured(member(module, asked.cfg_class, OldJobCfg, "JobCfg class"))
    generation = job.generation
    if asked.rl_library:
        job.cfg["runner_args"]["--rl_library"] = asked.rl_library
        generation = "new"
    if generation == "new":
        job.cfg["runner_args"]["-rid"] = process_mark()
    values = dict(value.split("=", 1) for value in asked.values)
    config = resolved(job.cfg, values, asked.draw)
    workflow = str(Path(ISAAC_LAB, asked.workflow or WORKFLOWS[generation]))
    return words(config, python=asked.python, workflow=workflow, generation=generation)


def main(given: list[str]) -> int:
    """Do what was asked. Raises Unusable."""
    asked = arguments(given)
    if asked.action == "space":
        with contextlib.redirect_stdout(sys.stderr):
            found = described(asked)
        print(json.dumps(found))
        return 0
    module = load(Path(asked.cfg_file)) if asked.action == "run" else None
    command = continued(command_of(asked, module) if module else asked.values)
    if asked.print:
        print(json.dumps(command))
        return 0
    print(f"+ {shlex.join(command)}", flush=True)
    if module and asked.stopper:
        stopper = configured(member(module, asked.stopper, Stopper, "stopper"))
        return stopped_early(command, stopper, asked.stopper)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        raise Unusable(f"cannot start {command[0]}: {error.strerror}") from error


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Unusable as error:
        sys.exit(f"isaac_task.py: {error}")
