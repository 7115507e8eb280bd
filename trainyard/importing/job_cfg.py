"""A JobCfg class of Isaac Lab's tuner -> a sweep. The program that runs on nodes says what the class varies."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from trainyard_runner import event_files

from trainyard.errors import RequestError
from trainyard.importing.job import PROGRAM, TRAINING, Imported, Options, program
from trainyard.seams import programs
from trainyard.spec.units import format_duration
from trainyard.wording import counted

# Loading a file imports no simulator.
SECONDS = 60.0
_RL_GAMES = "agent.params."


def read(file: Path, options: Options) -> Imported:
    """Return the job of a class. Raises RequestError for a file or a name that cannot be used."""
    found = _described(file, options)
    above = file.resolve().parent.parent
    files = {name: above / name for name in found["files"]} | {PROGRAM: program()}
    if options.stopper:
        files["event_files.py"] = Path(event_files.__file__)
    return Imported(found["cfg_class"], _job(file, found, options), files, tuple(_notes(found, options)))


def _described(file: Path, options: Options) -> dict[str, Any]:
    """Ask the program what a class varies, in a process of its own: its defaults are shared between classes."""
    if not file.exists():
        raise RequestError(f"no such file: {file}")
    given = _flags(cfg_file=str(file), **{name: getattr(options, name) for name in _NAMES})
    ended = programs.run([sys.executable, "-B", str(program()), "space", *given], env=os.environ, seconds=SECONDS)
    last = ended.tail[-1] if ended.tail else "it printed nothing"
    if ended.code == 0 and last.startswith("{"):
        found: dict[str, Any] = json.loads(last)
        return found
    why = f"{file.name} exits by itself, with exit code {ended.code}: {last}"
    if ended.code < 0:
        why = f"not loaded within {SECONDS:g} s"
    elif last.startswith(f"{PROGRAM}: "):
        why = last.removeprefix(f"{PROGRAM}: ")
    raise RequestError(why, where=str(file), hint="invoke --help train.import")


_NAMES = ("cfg_class", "stopper", "progress_reporter")


def _flags(**values: str) -> list[str]:
    return [word for name, value in values.items() if value for word in (f"--{name}", value)]


def _job(file: Path, found: dict[str, Any], options: Options) -> dict[str, Any]:
    """Return the job file: a sweep, or where nothing varies, repeats of the one training."""
    flags = _flags(
        cfg_file=f"{file.resolve().parent.name}/{file.name}",
        cfg_class=found["cfg_class"],
        python=options.python,
        workflow=options.workflow,
        rl_library=options.rl_library,
        stopper=options.stopper,
        draw="{draw}" if found["draws"] else "",
    )
    values = [f"{name}={{{name}}}" for name in found["space"]]
    job: dict[str, Any] = {"command": ["python", PROGRAM, "run", *flags, "--", *values]}
    space = found["space"] | ({"draw": {"randint": [0, 2**31 - 1]}} if found["draws"] else {})
    if space:
        job["tune"] = {
            "space": space,
            "metric": options.metric,
            "mode": options.mode,
            "samples": _samples(options),
            "repeats": options.repeat_run_count,
            "silence": format_duration(options.process_response_timeout),
        }
    else:
        job |= {"matrix": {"repeat": list(range(options.repeat_run_count))}, "env": {"ISAAC_REPEAT": "{repeat}"}}
    return job | {"resources": {"gpus": 1}, **TRAINING}


def _samples(options: Options) -> int:
    return max(1, options.num_samples // options.repeat_run_count)


def _notes(found: dict[str, Any], options: Options) -> list[str]:
    """Return what is different from Isaac Lab's own tuner, for this class."""
    repeats = options.repeat_run_count
    notes = [f"Nothing varies in {found['cfg_class']}: it is one training, {repeats} times."]
    if found["space"] or found["draws"]:
        configurations = counted(_samples(options), "configuration")
        notes = [f"num_samples counts repeats: {options.num_samples} is {configurations}, {repeats} times each."]
    if found["draws"]:
        notes.append("What the file itself draws depends on `draw` alone: all repeats of a trial get the same.")
    if options.progress_reporter:
        notes.append(f"{options.progress_reporter} is not used: tune.status and the report show every trial.")
    library = options.rl_library or found["rl_library"]
    if library not in (None, "rl_games") and any(key.startswith(_RL_GAMES) for key in found["hydra"]):
        notes.append(f"{_RL_GAMES}* are settings of rl_games, and --rl_library is {library}: --rl-library rl_games?")
    return notes
