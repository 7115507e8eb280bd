"""Convert command lines of Isaac Lab's Ray scripts into jobs.

The scripts are submit_job (`*` separates its aggregate jobs), wrap_resources
(`+` separates its sub-jobs), tuner and task_runner.
"""

from __future__ import annotations

import argparse
import re
import shlex
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path
from typing import Any, NoReturn

from trainyard.errors import Problem, RequestError
from trainyard.importing import job_cfg, separators, shell, task_runner
from trainyard.importing.job import (
    ON_GPUS,
    Imported,
    Options,
    note_of_training,
    share_of_a_node,
    training,
)
from trainyard.importing.shell import Command

# Flags that imply a script if the command line does not name one.
SCRIPTS = {
    "--aggregate_jobs": "submit_job",
    "--sub_jobs": "wrap_resources",
    "--cfg_file": "tuner",
    "--task_cfg": "task_runner",
}
TUNER_CFG = ("hyperparameter_tuning/vision_cartpole_cfg.py", "CartpoleRGBNoTuneJobCfg")
# Flags without a meaning in Trainyard, each with the note for the user.
IGNORED = {
    "ray_address": "ray_address is not used: `-f` chooses the cluster.",
    "run_mode": "run_mode is not used: `-f` chooses the cluster, such as `-f local`.",
    "mlflow_uri": "mlflow_uri is not used: metrics are in results/RUN and in the report.",
    "config_file": (
        "config_file is not read: import it as well, then `-f` chooses one of its clusters."
    ),
    "max_lines_to_search_experiment_logs": (
        "max_lines_to_search_experiment_logs is not needed: no line is searched."
    ),
    "max_log_extraction_errors": (
        "max_log_extraction_errors is not needed: tune.stop.failures ends a sweep."
    ),
}
# Isaac Lab's scripts that run no job, each with a hint on its replacement.
OTHER_SCRIPTS = {
    "launch": "trainyard cluster.import -- launch.py ... writes its clusters as cluster files.",
    "grok_cluster_with_kubectl": (
        "trainyard cluster.import --context CONTEXT PREFIX writes a file for each cluster."
    ),
    "mlflow_to_local_tensorboard": "Runs of Trainyard do not need it, because their event files "
    "come home: "
    "tensorboard --logdir results",
}
# Training commands of other programs, each with a hint that says where its arguments belong.
OTHER_PROGRAMS = {
    "ray job submit": "To write jobs/NAME/job.yaml: the words after -- become `command:`, "
    "--runtime-env becomes `runtime_env:`, and the files of --working-dir go into jobs/NAME. Or "
    "run this command as it is: trainyard cluster.open prints the address.",
    "ray submit": "The program is the `command:` of a job.yaml, in its directory jobs/NAME.",
    "ray up": "trainyard cluster.import FILE writes a cluster file of it.",
    "rllib train": "jobs/rllib trains with RLlib; its command is: python train.py ...",
}
RESOURCES = {"gpu_per_worker": "gpus", "cpu_per_worker": "cpus", "ram_gb_per_worker": "memory"}
_ONE_CPU = (
    "cpu_per_worker is not given: each gets 1 CPU. Set resources.cpus, or leave all three "
    "flags out for a whole node."
)
_VARIABLE_USED = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)")
# Programs that run Isaac Lab's scripts. They are dropped without a note, because the job runs the
# program of `--python`.
_RUNS_PYTHON = re.compile(r"(?:.*/)?(?:python[0-9.]*|isaaclab\.(?:sh|bat)|uv)")


class Parser(argparse.ArgumentParser):
    """A parser of an Isaac Lab script's flags that raises RequestError."""

    def __init__(self, script: str, *, command: str) -> None:
        super().__init__(prog=f"{script}.py", allow_abbrev=False)
        self._command = command

    def error(self, message: str) -> NoReturn:
        raise RequestError(f"{self.prog}: {message}", hint=f"trainyard --help {self._command}")


def _parser(script: str) -> Parser:
    parser = Parser(script, command="train.import")
    for name in IGNORED:
        parser.add_argument(f"--{name}")
    return parser


def of_file(lines: Sequence[Sequence[Command]], options: Options, file: Path) -> Imported:
    """Return the job of a file's only Isaac Lab command; note all other text.

    Without such a command, all words are read as one command. Raises
    RequestError for several.
    """
    known = []
    all_words = []
    for command in chain.from_iterable(lines):
        all_words += command.words
        if _script(command.words)[0] is not None:
            known.append(command)

    if len(known) > 1:
        raise _several(file, known)
    if known:
        chosen = known[0]
        others = [line[0].line for line in lines if chosen not in line]
    else:
        chosen = Command(all_words)
        others = []

    found = read(chosen.words, options, name=file.stem.lstrip("."), directory=file.parent)
    found = replace(found, notes=(*found.notes, *_notes_of_variables(chosen.words)))
    return _with_unread(found, [*chosen.rest, *others])


def _several(file: Path, commands: Sequence[Command]) -> RequestError:
    problems = []
    for number, command in enumerate(commands, 1):
        problems.append(Problem(f"{number}.", _shortened(command.line)))

    return RequestError(
        f"{file} has {len(commands)} command lines of Isaac Lab's Ray scripts",
        problems=tuple(problems),
        hint="Import each of them, from a file of its own or behind `--`. If they are one, "
        "its lines end with \\.",
    )


def _notes_of_variables(words: Sequence[str]) -> list[str]:
    names: list[str] = []
    for word in words:
        names += _VARIABLE_USED.findall(word)

    return [
        f"${name} is expanded on the node, where only `env:` of the job can set it."
        for name in dict.fromkeys(names)
    ]


def _shortened(line: str) -> str:
    return textwrap.shorten(line, 100, placeholder=" ...")


def read(words: Sequence[str], options: Options, *, name: str, directory: Path) -> Imported:
    """Return the job of a command line; `name` is for jobs of submit_job.

    Paths in the line are relative to `directory`. Raises RequestError.
    """
    script, given = _script(words)
    if script is None:
        raise _no_job(words)
    if script != "submit_job":
        return _job(words, options, directory)

    found = _aggregated(given, options, name, directory)
    return _with_unread(found, _before(words, given))


def _with_unread(found: Imported, texts: Sequence[str]) -> Imported:
    notes = [f"not read: {_shortened(text)}" for text in texts]
    return replace(found, notes=(*found.notes, *notes))


def _before(words: Sequence[str], given: Sequence[str]) -> list[str]:
    """Return, for a note, the words before a script; [] if they run Python.

    Variables before the program are dropped, because Isaac Lab does not pass
    them to tasks.
    """
    before = words[: max(len(words) - len(given) - 1, 0)]
    before = before[shell.variables(before) :]
    if before and not _RUNS_PYTHON.fullmatch(before[0]):
        return [" ".join(before)]
    return []


def _aggregated(given: Sequence[str], options: Options, name: str, directory: Path) -> Imported:
    """Return one job whose tasks are the aggregate jobs of submit_job."""
    parser = _parser("submit_job")
    parser.add_argument("--aggregate_jobs", nargs=argparse.REMAINDER, required=True)
    flags = vars(parser.parse_args(given))

    jobs = []
    for part in separators.jobs(flags["aggregate_jobs"], "*"):
        jobs.append(_job(part, options, directory))

    if len(jobs) == 1:
        found = replace(jobs[0], name=name)
    else:
        found = _joined(jobs, name)
    return _noted(found, flags)


def _joined(jobs: Sequence[Imported], name: str) -> Imported:
    """Return one job with all tasks.

    Raises RequestError if a job has more than tasks and smoke checks.
    """
    tasks = []
    files: dict[str, Path] = {}
    notes = [
        "Isaac Lab distributes aggregate jobs over its clusters in turn; here they are tasks of "
        "one job, on one cluster."
    ]
    first_smoke: dict[str, Any] = {}

    for number, found in enumerate(jobs, 1):
        if not found.job.keys() <= {"tasks", "smoke"}:
            raise RequestError(
                "aggregate jobs cannot become one job if one is a sweep, needs packages, or starts "
                "all its tasks at once",
                hint="Import each part between two `*` by itself.",
            )
        for task in found.job["tasks"]:
            tasks.append({**task, "name": f"{number}.{task['name']}"})
        files |= found.files
        notes += found.notes
        if "smoke" in found.job and not first_smoke:
            first_smoke = {"smoke": found.job["smoke"]}

    return Imported(name, {"tasks": tasks, **first_smoke}, files, tuple(dict.fromkeys(notes)))


def _script(words: Sequence[str]) -> tuple[str | None, list[str]]:
    """Return the Isaac Lab script of a command line, and the words after it.

    The script is given by file, by module, or implied by a flag of SCRIPTS.
    Without a script, the result is (None, all words).
    """
    for index, word in enumerate(words):
        if (script := script_of(words, index)) in SCRIPTS.values():
            return script, list(words[index + 1 :])
        if word in SCRIPTS:
            return SCRIPTS[word], list(words)
    return None, list(words)


def _no_job(words: Sequence[str]) -> RequestError:
    for stem in (script_of(words, index) for index in range(len(words))):
        if stem in OTHER_SCRIPTS:
            return RequestError(f"{stem}.py runs no job", hint=OTHER_SCRIPTS[stem])
    if other := other_program(words):
        return other
    known = f"It names one of {', '.join(SCRIPTS.values())}, or begins with {', '.join(SCRIPTS)}."
    return RequestError("this is no command line of Isaac Lab's Ray scripts", hint=known)


def other_program(words: Sequence[str]) -> RequestError | None:
    """Return the error for a command of OTHER_PROGRAMS, None for any other."""
    line = words[shell.variables(words) :]
    for program, hint in OTHER_PROGRAMS.items():
        if list(line[: len(program.split())]) == program.split():
            return RequestError(f"`{program}` is no line of Isaac Lab's Ray scripts", hint=hint)
    return None


def script_of(words: Sequence[str], index: int) -> str:
    """Return the name of a .py file or of a module after -m; else ""."""
    if words[index].endswith(".py"):
        return Path(words[index]).stem
    if index and words[index - 1] == "-m":
        return words[index].rpartition(".")[2]
    return ""


def _job(words: Sequence[str], options: Options, directory: Path) -> Imported:
    """Convert one aggregate job.

    Its words name an Isaac Lab script, or are arguments of `options.python`.
    """
    if len(words) == 1:
        return _job_in_quotes(words[0], options, directory)
    return _job_of_words(words, options, directory)


def _job_of_words(words: Sequence[str], options: Options, directory: Path) -> Imported:
    script, given = _script(words)
    if script is None:
        return _tasks([([*shlex.split(options.python), *words], share_of_a_node(1))])
    return _with_unread(_of_script(script, given, options, directory), _before(words, given))


def _of_script(script: str, given: Sequence[str], options: Options, directory: Path) -> Imported:
    """Return the job that an Isaac Lab script would run with these flags."""
    parser = _parser(script)
    if script == "task_runner":
        parser.add_argument("--task_cfg", required=True)
        parser.add_argument("--test", action="store_true")
        flags = vars(parser.parse_args(given))
        found = task_runner.read(directory / flags["task_cfg"], python=options.python)
        if flags["test"]:
            found = _looking_at_gpus(found)
        return _noted(found, flags)
    if script == "wrap_resources":
        return _wrapped(parser, given, directory)

    parser.add_argument("--cfg_file", default=TUNER_CFG[0])
    for name, default in asdict(options).items():
        parser.add_argument(f"--{name}", type=type(default), default=default)

    parser.set_defaults(cfg_class=options.cfg_class or TUNER_CFG[1])
    flags = vars(parser.parse_args(given))
    chosen = Options(**{name: flags[name] for name in asdict(options)})
    return _noted(job_cfg.read(directory / flags["cfg_file"], chosen), flags)


def _job_in_quotes(line: str, options: Options, directory: Path) -> Imported:
    """Convert a quoted aggregate job; words around the script become notes."""
    try:
        lines = shell.commands(re.sub(r"\\?\n", " ", line))
    except ValueError as error:
        raise RequestError(f"a job in quotes cannot be read: {error}", where=line) from error

    for command in chain.from_iterable(lines):
        if _script(command.words)[0] is not None:
            found = _job_of_words(command.words, options, directory)
            return _with_unread(found, command.rest)

    # The line stays one word, because it was in quotes.
    return _tasks([([f"{options.python} {line}"], share_of_a_node(1))])


def _noted(found: Imported, flags: Mapping[str, Any]) -> Imported:
    notes = [note for name, note in IGNORED.items() if flags.get(name) is not None]
    return replace(found, notes=(*found.notes, *notes))


def _looking_at_gpus(found: Imported) -> Imported:
    """Replace each command by nvidia-smi, as task_runner's --test does."""
    tasks = []
    for task in found.job["tasks"]:
        kept = {key: task[key] for key in ("name", "resources", "node") if key in task}
        tasks.append({"command": ["nvidia-smi"], **kept})
    return replace(found, job={**found.job, "tasks": tasks}, files={}, notes=())


def _wrapped(parser: argparse.ArgumentParser, words: Sequence[str], directory: Path) -> Imported:
    """Return the job whose tasks are the sub-jobs of wrap_resources."""
    for name in (*RESOURCES, "num_workers"):
        parser.add_argument(f"--{name}", nargs="+", type=int)

    parser.add_argument("--test", action="store_true")
    parser.add_argument("--py_modules", nargs="*", default=[])
    parser.add_argument("--sub_jobs", nargs=argparse.REMAINDER, default=[])
    given = vars(parser.parse_args(words))
    if given["test"]:
        task = {"name": "nvidia-smi", "command": ["nvidia-smi"], "resources": {"gpus": 1}}
        return _noted(Imported("test", {"tasks": [task], "smoke": ON_GPUS}), given)

    sub_jobs = separators.jobs(given["sub_jobs"], "+")
    if not sub_jobs:
        parser.error("it needs --sub_jobs, or --test")

    granular = [name for name in RESOURCES if given[name]]
    if granular and given["num_workers"]:
        parser.error(f"give either num_workers or {', '.join(granular)}, as for Isaac Lab")

    if given["num_workers"] and min(given["num_workers"]) < 1:
        parser.error("num_workers must be at least 1")

    found = _tasks([(words, _resources(given, index)) for index, words in enumerate(sub_jobs)])
    if granular and not given["cpu_per_worker"]:
        found = replace(found, notes=(*found.notes, _ONE_CPU))

    if given["py_modules"]:
        modules = []
        for module in given["py_modules"]:
            if "://" not in module:
                module = str((directory / module).resolve())
            modules.append(module)
        found = replace(found, job={**found.job, "runtime_env": {"py_modules": modules}})

    return _noted(found, given)


def _resources(given: dict[str, Any], index: int) -> dict[str, Any]:
    """Return the resources of the sub-job at `index`.

    The sub-jobs take a flag's values in order; those without a value take the
    last value. Without such flags, the sub-job gets a share of a node.
    """
    if not any(given[name] for name in RESOURCES):
        return share_of_a_node(_value_at(index, given["num_workers"] or [1]))

    chosen: dict[str, Any] = {"gpus": 1}
    for name, key in RESOURCES.items():
        if given[name]:
            chosen[key] = _value_at(index, given[name])
    if "memory" in chosen:
        chosen["memory"] = f"{chosen['memory']}GiB"
    return chosen


def _value_at(index: int, values: Sequence[int]) -> int:
    return values[min(index, len(values) - 1)]


def _tasks(jobs: Sequence[tuple[list[str], dict[str, Any]]]) -> Imported:
    """Return a job with a task for each pair of words and resources.

    Isaac Lab runs each command in a shell. Here, a command gets a shell only if
    it needs one.
    """
    tasks: list[dict[str, Any]] = []
    files: dict[str, Path] = {}
    notes: list[str] = []

    for number, (words, resources) in enumerate(jobs, 1):
        name = f"job-{number}"
        own, variables = _own_command(number, words)
        command, more, needed = training(own)
        files |= needed
        note = note_of_training(name, command)
        if note:
            notes.append(note)

        task: dict[str, Any] = {"name": name, "command": command, "resources": resources, **more}
        if variables:
            task["env"] = variables
        tasks.append(task)

    job: dict[str, Any] = {"tasks": tasks}
    if any("share" in task["resources"] for task in tasks):
        job["smoke"] = ON_GPUS

    return Imported("jobs", job, files, tuple(notes))


def _own_command(number: int, words: list[str]) -> tuple[list[str], dict[str, str]]:
    """Return a sub-job's command, and the variables set before it.

    A single word is a sub-job in quotes. Isaac Lab joins all words without
    quotes, so its shell cuts `bash -c 'cd /w && python a.py'` at `&&`. If a
    quoted value has shell operators, raises RequestError with both readings.
    """
    if len(words) == 1:
        if shell.is_needed(words[0]):
            return shell.command(words[0]), {}
        words = shell.split(words[0])
    elif shell.is_needed_for(words):
        _check_values(number, words)
        return shell.command(shell.joined(words)), {}

    count = shell.variables(words)
    variables = {}
    for pair in words[:count]:
        name, _, value = pair.partition("=")
        variables[name] = value.replace("{", "{{").replace("}", "}}")
    return words[count:], variables


def _check_values(number: int, words: Sequence[str]) -> None:
    """Raise RequestError for a quoted value that Isaac Lab's shell splits."""
    for word in words:
        if not re.search(r"\s", word) or word not in shell.joined([word]):
            continue
        raise RequestError(
            f"job {number} can be read in two ways: {' '.join(words)}",
            problems=(
                Problem("one value", shlex.quote(word)),
                Problem("shell operators, as Isaac Lab reads them", " ".join(words)),
            ),
            hint="Put the whole sub-job in quotes, and its values in the other kind of quotes: "
            f"{shlex.quote(shlex.join(words))}",
        )
