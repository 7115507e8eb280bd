"""Convert a JobCfg class of Isaac Lab's tuner into a sweep.

isaac_task.py, which also runs on nodes, is started to load the class and
describe its values.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainyard_runner.wire import event_files

from trainyard.errors import RequestError
from trainyard.importing.job import (
    ON_GPUS,
    PROGRAM,
    TRAINING,
    Imported,
    Options,
    program,
    refuse_unreadable,
    share_of_a_node,
)
from trainyard.seams import programs
from trainyard.spec.units import format_duration

# Loading a file of classes takes a second. Code that never ends must not block the terminal.
LOAD_SECONDS = 60.0
_NAMES = ("cfg_class", "stopper", "progress_reporter")


def read(file: Path, options: Options) -> Imported:
    """Return the job of a JobCfg class; another process executes its file.

    Raises RequestError if the file cannot be loaded, or a number in `options`
    is below 1.
    """
    for name in ("num_workers_per_node", "num_samples", "repeat_run_count"):
        if (number := getattr(options, name)) < 1:
            raise RequestError(f"{name} must be at least 1, got {number}")

    found = _described(file, options)
    above = file.resolve().parent.parent
    files = {name: above / name for name in found["files"]} | {PROGRAM: program()}

    if options.stopper:
        files["event_files.py"] = Path(event_files.__file__)

    samples = max(1, options.num_samples // options.repeat_run_count)
    job = _job(file, found, options, samples)
    return Imported(
        found["cfg_class"],
        job,
        files,
        tuple(_notes(found, options, samples if "tune" in job else 0)),
    )


def _notes(found: dict[str, Any], options: Options, samples: int) -> Iterator[str]:
    """Yield differences from Isaac Lab; `samples` is 0 without a sweep."""
    if samples:
        yield (
            f"num_samples counts repeats: {options.num_samples} is {samples} configurations, "
            f"{options.repeat_run_count} times each."
        )

    if found["ends_sweep"]:
        yield (
            f"stop_all of {options.stopper} is not called: each trial has a stopper of its own. "
            "tune.time, "
            "tune.stop.plateau and tune.stop.failures end a sweep."
        )

    if found["columns"]:
        yield (
            f"The columns of {options.progress_reporter} ({', '.join(found['columns'])}) are "
            "curves of the report; "
            "tune.status shows the metric of every trial."
        )

    yield from found["notes"]


def _described(file: Path, options: Options) -> dict[str, Any]:
    """Let isaac_task.py describe a class.

    Raises RequestError if the file cannot be loaded. isaac_task.py runs in a
    process of its own, since classes share mutable defaults.
    """
    refuse_unreadable(file)
    given = _flags(cfg_file=str(file), **{name: getattr(options, name) for name in _NAMES})
    command = [sys.executable, "-B", str(program()), "space", *given]
    ended = programs.run(command, env=os.environ, seconds=LOAD_SECONDS)
    if ended.code < 0:
        raise RequestError(
            f"{file.name} was still being loaded after {LOAD_SECONDS:.0f} s",
            where=str(file),
            hint="A JobCfg class must be defined without waiting for anything.",
        )

    # All lines are searched, because the file or its atexit functions may print more lines.
    ours = f"{PROGRAM}: "
    said = [line.removeprefix(ours) for line in ended.tail if line.startswith(ours)]
    if said and said[-1].startswith("{"):
        found: dict[str, Any] = json.loads(said[-1])
        return found

    last = ended.tail[-1] if ended.tail else "it printed nothing"
    if said:
        why = said[-1]
    else:
        why = f"{file.name} cannot be loaded (exit code {ended.code}): {last}"

    raise RequestError(why, where=str(file), hint="trainyard --help train.import")


def _flags(**values: str) -> list[str]:
    flags = []
    for name, value in values.items():
        if value:
            flags += [f"--{name}", value]
    return flags


def _job(file: Path, found: dict[str, Any], options: Options, samples: int) -> dict[str, Any]:
    """Return the job file: a sweep, or repeated trainings without a space."""
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
            "samples": samples,
            "repeats": options.repeat_run_count,
            "silence": format_duration(options.process_response_timeout),
        }
    else:
        job |= {
            "matrix": {"repeat": list(range(options.repeat_run_count))},
            "env": {"ISAAC_REPEAT": "{repeat}"},
        }

    return job | {
        "resources": share_of_a_node(options.num_workers_per_node),
        "smoke": ON_GPUS,
        **TRAINING,
    }
