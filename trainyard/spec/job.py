"""The job file: what to run, how often, and what each task needs."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    JsonValue,
    SerializerFunctionWrapHandler,
    WithJsonSchema,
    model_serializer,
)

from trainyard.spec import ray_forms
from trainyard.spec.fields import (
    Command,
    Complaint,
    Duration,
    Filled,
    Listed,
    OwnVariables,
    Section,
    Size,
    check_relative,
    matching,
    rule,
    same_names,
    setting,
)
from trainyard.spec.placeholders import KEY_PATTERN, MatrixKey, MatrixValue, Scalar, unknown, unused
from trainyard.spec.ray_nodes import ResourceName, not_rays
from trainyard.spec.tune import REPEAT, Tune
from trainyard.spec.units import GIB
from trainyard.spec.watch import Watch
from trainyard.spec.yaml_source import KeyPath

MOST_TASKS = 100_000
SHARE_PATTERN = r"^1/[1-9][0-9]{0,2}$"
# Keys that a share replaces.
AMOUNTS = ("cpus", "gpus", "memory")
TASK_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._=,+-]{0,99}$"
# Keys of Ray's runtime_env that a job file does not have, and what to write instead.
RAY_KEYS = {
    "working_dir": "the job directory is sent; name more under `files`",
    "excludes": "write .rayignore into the job directory",
    "container": "name the image in the cluster file",
    "image_uri": "name the image in the cluster file",
    "py_executable": "write it into the job's command",
    "worker_process_setup_hook": "a task is a program of its own, which can do the setup",
}


def _matrix_complaints(matrix: Mapping[str, Sequence[Scalar]]) -> Iterator[Complaint]:
    for key, values in matrix.items():
        if not values:
            yield Complaint((key,), "must not be empty")
    count = math.prod(len(values) for values in matrix.values())
    if count > MOST_TASKS:
        yield Complaint((), f"makes {count:,} tasks, and a job has at most {MOST_TASKS:,}")


_PATTERN = re.compile(r"[*?]|\[.+\]")


def _no_pattern(path: str) -> str:
    if _PATTERN.search(path):
        raise ValueError(
            "must be a file or directory, and no pattern: name the directory that holds the files"
        )
    return path


def _whole_or_share(gpus: float) -> float:
    if gpus > 1 and not gpus.is_integer():
        raise ValueError("must be a fraction below 1 or a whole number")
    return gpus


def _read_share(written: object) -> object:
    """Read a share. Text such as `1/3` is exact, which 0.333 is not."""
    if isinstance(written, str):
        if not re.fullmatch(SHARE_PATTERN, written):
            raise ValueError(
                "must be a number above 0 and at most 1, or one part of a node such as 1/3"
            )
        return 1 / int(written.removeprefix("1/"))
    return written


Matrix = Annotated[
    dict[MatrixKey, Listed[MatrixValue]],
    rule(_matrix_complaints),
    WithJsonSchema(
        {
            "type": "object",
            "propertyNames": {"pattern": KEY_PATTERN},
            "additionalProperties": {
                "type": "array",
                "items": {"type": ["string", "number", "boolean"]},
                "minItems": 1,
                "uniqueItems": True,
            },
        }
    ),
]
TaskName = Annotated[
    str,
    matching(
        rf"(?!.*\.\.){TASK_PATTERN[1:-1]}",
        "must be letters, digits and any of . _ = , + - without '..', "
        "start with a letter or digit, at most 100 characters",
    ),
    WithJsonSchema({"type": "string", "pattern": TASK_PATTERN}),
]
Outputs = Listed[Annotated[Filled, AfterValidator(check_relative), AfterValidator(_no_pattern)]]
ExitCode = Annotated[int, Field(ge=1, le=255)]
Gpus = Annotated[float, AfterValidator(_whole_or_share)]
TaskResources = Annotated[
    dict[ResourceName, Annotated[float, Field(gt=0, le=1_000_000)]], rule(not_rays)
]
Share = Annotated[
    float,
    BeforeValidator(_read_share),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
                {"type": "string", "pattern": SHARE_PATTERN},
            ]
        }
    ),
]


class Actors(Section):
    """Resources kept free, on any nodes, for a task's actors and Ray tasks."""

    cpus: float = setting(
        0.0, "CPUs of all actors and Ray tasks that one task starts, together.", ge=0, le=100_000
    )
    gpus: float = setting(0.0, "GPUs of these actors and Ray tasks together.", ge=0, le=100_000)
    memory: Size | None = setting(None, "Memory of these actors and Ray tasks together.")


class Resources(Section):
    """The resources of one task."""

    cpus: float = setting(1.0, "CPUs of one task; fractions are allowed.", ge=0, le=1024)
    gpus: Gpus = setting(
        0.0,
        "GPUs of one task: a fraction below 1 shares one GPU with other tasks, a whole number "
        "reserves GPUs for this task alone.",
        ge=0,
        le=64,
    )
    memory: Size | None = setting(None, "Memory that is set aside for one task.")
    share: Share | None = setting(
        None,
        "The part of one node that a task gets, instead of cpus, gpus and memory: 1 is the whole "
        "node, 0.5 or 1/2 half of each.",
        gt=0,
        le=1,
    )
    custom: TaskResources = setting(
        {}, "Ray's custom resources that one task needs, such as {A100: 1}."
    )
    actors: Actors = setting(
        Actors(), "Resources kept free for the actors and Ray tasks that a task starts."
    )

    def complaints(self) -> Iterator[Complaint]:
        """Reject amounts or actors together with a share."""
        if self.share is None:
            return

        for name in AMOUNTS:
            if name in self.model_fields_set:
                message = (
                    "must not be given together with share, which covers a node's CPUs, "
                    "GPUs and memory"
                )
                yield Complaint((name,), message, getattr(self, name))
        if self.actors != Actors():
            yield Complaint(
                ("actors",),
                "must not be given together with share; give the task cpus, gpus and memory instead",
            )

    @model_serializer(mode="wrap")
    def _without_amounts(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        document: dict[str, Any] = handler(self)
        if self.share is None:
            return document
        return {name: value for name, value in document.items() if name not in AMOUNTS}


class Placement(Section):
    """Where a task has to run."""

    name: Filled | None = setting(
        None,
        "One node: `head` or GROUP-INDEX; or the name of the node's host, its address, or Ray's id "
        "of the node.",
    )
    group: Filled | None = setting(None, "Any node of one worker group.")

    def complaints(self) -> Iterator[Complaint]:
        if (self.name is None) == (self.group is None):
            yield Complaint((), "must have one of: name, group")


class RuntimeEnv(Section):
    """Packages, files and variables that Ray gives the tasks."""

    uv: Listed[Filled] = setting((), "Packages to install with uv: a list, or a requirements file.")
    pip: Listed[Filled] = setting(
        (), "Packages to install with pip: a list, or a requirements file."
    )
    wheels: Listed[Filled] = setting(
        (), "Wheels to send and install, or directories of packages to build wheels from."
    )
    py_modules: Listed[Filled] = setting(
        (), "Directories or .py files that tasks import by their names."
    )
    conda: Filled | dict[str, Any] | None = setting(
        None,
        "A conda environment: the name of one in the image, or its definition as a mapping or an "
        "environment.yml.",
    )
    install_options: dict[str, JsonValue] = setting(
        {},
        "Options of pip or uv, by Ray's names: pip_version, pip_install_options, "
        "uv_pip_install_options ...",
    )
    config: dict[str, JsonValue] = setting(
        {}, "How Ray makes the environment, by Ray's names: setup_timeout_seconds ..."
    )
    env_vars: OwnVariables = setting({}, "Environment variables of the tasks' workers.")
    files: Listed[Filled] = setting(
        (), "More files or directories to send along, also from outside the job directory."
    )

    def complaints(self) -> Iterator[Complaint]:
        """Reject two installers, unknown options, and conda with wheels.

        Ray accepts one of uv, pip and conda (ray.runtime_env).
        """
        named = [name for name in ("uv", "pip", "conda") if getattr(self, name)]
        if len(named) > 1:
            yield Complaint((), f"has both {' and '.join(named)}: Ray accepts one of them")

        options: set[str] = set()
        for key in named:
            options.update(ray_forms.OPTIONS.get(key, ()))
        for name in self.install_options.keys() - options:
            known = ", ".join(sorted(options)) or "none without uv or pip"
            yield Complaint(
                ("install_options", name), f"is not an option that Ray knows here; known: {known}"
            )

        if self.conda and self.wheels:
            yield Complaint(
                (),
                "has both conda and wheels: list the wheels under `pip:` in the conda environment",
            )


class SmokeNeeds(Section):
    """Conditions on the cluster before this job may start."""

    gpus: bool = setting(
        False, "true: at least one node has GPUs, and every GPU node passes its GPU checks."
    )
    torch: bool = setting(
        False,
        "true: torch is importable on the GPU nodes and sees their GPUs; in a cluster without GPU "
        "nodes, it is importable on all nodes.",
    )
    graphics: bool = setting(
        False, "true: Vulkan finds a GPU that renders on every GPU node; Isaac Sim needs one."
    )
    transfer: bool = setting(
        True, "false: leave out the transfer of objects between each pair of nodes."
    )
    min_nodes: int | None = setting(
        None, "The fewest nodes that must be alive, the head included.", ge=1, le=10_000
    )
    min_disk: Size | None = setting(None, "Free disk that every node must have.")
    min_shm: Size | None = setting(None, "Free shared memory (/dev/shm) that every node must have.")


class TaskEntry(Section):
    """A task of an explicit list; keys left out have the job's values."""

    name: TaskName = Field(description="The task's name, unique in the job.")
    command: Command = Field(description="Program and arguments.")
    resources: Resources | None = setting(None, "Only the resources that differ from the job's.")
    node: Placement | None = setting(None, "Instead of the job's.")
    env: OwnVariables = setting({}, "Environment variables on top of the job's.")
    retries: int | None = setting(None, "Instead of the job's.", ge=0, le=1000)
    timeout: Duration | None = setting(None, "Instead of the job's.")
    outputs: Outputs | None = setting(None, "Instead of the job's.")

    def complaints(self) -> Iterator[Complaint]:
        """Reject placeholders, which have no values in a list of tasks."""
        yield from unknown("command", dict(enumerate(self.command)), ())
        yield from unknown("env", self.env, ())


Tasks = Annotated[
    Listed[TaskEntry], rule(lambda tasks: same_names([task.name for task in tasks], "tasks"))
]


class JobSpec(Section):
    """A job file, validated. Its name is its directory's name."""

    name: str = Field(description="The name of the job's directory.")
    matrix: Matrix = setting({}, "One task per combination; {key} in command and env is replaced.")
    command: Command | None = setting(
        None, "Program and arguments; never joined into a shell string."
    )
    tasks: Tasks | None = setting(None, "An explicit list of tasks, instead of command and matrix.")
    resources: Resources = setting(Resources(), "What each task needs.")
    together: bool = setting(False, "true: all tasks start at once, or none does.")
    retries: int = setting(
        0,
        "How often a failed task is tried again; attempts that are lost with their node do not "
        "count.",
        ge=0,
        le=1000,
    )
    final_exit_codes: Listed[ExitCode] = setting(
        (), "Exit codes after which a task is not retried, such as 2 for a wrong command line."
    )
    timeout: Duration | None = setting(None, "How long one attempt may take.")
    env: OwnVariables = setting({}, "Environment variables of every task.")
    runtime_env: RuntimeEnv = setting(RuntimeEnv(), "What Ray installs or sets for the tasks.")
    node: Placement | None = setting(None, "Where tasks have to run.")
    outputs: Outputs = setting(
        (), "Relative paths that come back in addition to $TRAINYARD_OUTPUT."
    )
    outputs_each_attempt: bool = setting(
        False,
        "true: every attempt starts with empty outputs, which come back into a directory of the "
        "attempt.",
    )
    outputs_limit: Size = setting(
        20 * GIB,
        "The most that comes back of one task; beyond this, the largest files stay behind.",
        ge=1,
    )
    outputs_every: Duration = setting(
        30.0, "How often a running task's changed outputs are brought home."
    )
    checkpoints: bool | None = setting(
        None,
        "Whether a task's last checkpoint is brought home when the task ends; left out: yes, but "
        "in a sweep only the best configuration's.",
    )
    watch: Watch | None = setting(
        None,
        "The metric that shows progress: a task that reports no new value in time is ended and "
        "tried again.",
    )
    tune: Tune | None = setting(
        None, "A sweep instead of a matrix: configurations are chosen while the sweep runs."
    )
    smoke: SmokeNeeds = setting(
        SmokeNeeds(), "Checks that the cluster must pass before this job may start."
    )

    def complaints(self) -> Iterator[Complaint]:
        """Check which keys go together, the placeholders, and the sweep."""
        if not self.command and not self.tasks:
            yield Complaint(("command",), "is missing: give command, or tasks")
        if self.tasks is not None and not self.tasks:
            yield Complaint(("tasks",), "must not be empty")
        if self.tasks and (self.command or self.matrix):
            yield Complaint(("tasks",), "must not be given together with command or matrix")

        yield from self._placeholder_complaints()

        if self.tune:
            for complaint in self.tune.problems():
                yield replace(complaint, path=("tune", *complaint.path))
            for name in ("matrix", "tasks", "together", "watch"):
                if getattr(self, name):
                    yield Complaint((name,), "must not be given together with tune")

    def _placeholder_complaints(self) -> Iterator[Complaint]:
        command = self.command or ()
        keys: Collection[str] = self.matrix
        known = list(self.matrix)
        source = "matrix"
        section: KeyPath = ("matrix",)
        if self.tune and self.tune.space:
            keys = self.tune.space
            known = [*self.tune.space, REPEAT]
            source = "space"
            section = ("tune", "space")

        problems = [
            *unknown("command", dict(enumerate(command)), known, source=source),
            *unknown("env", self.env, known, source=source),
        ]
        yield from problems
        if command and not problems:
            yield from unused(keys, (*command, *self.env.values()), section=section)
