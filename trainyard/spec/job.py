"""The job file: what to run, how often, and what each task needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pydantic import Field, ValidationInfo, field_validator

from trainyard.spec.fields import Complaint, Duration, Filled, Listed, Section, Size, complain, same_names
from trainyard.spec.job_values import (
    MOST_TASKS,
    Command,
    Cpus,
    Gpus,
    Matrix,
    Outputs,
    Packages,
    TaskName,
    TaskVariables,
    command_complaints,
    file_complaints,
)
from trainyard.spec.placeholders import unknown, unused


class Resources(Section):
    """What one task needs."""

    cpus: Cpus = Field(
        default=1.0, ge=0, le=1024, allow_inf_nan=False, description="CPUs of one task; fractions are allowed."
    )
    gpus: Gpus = Field(
        default=0.0,
        ge=0,
        le=64,
        allow_inf_nan=False,
        description="A fraction below 1 shares one GPU, a whole number isolates.",
    )
    memory: Size | None = Field(default=None, description="Memory that is set aside for one task.")


class Placement(Section):
    """Where a task has to run."""

    name: Filled | None = Field(default=None, description="One node: `head`, or GROUP-INDEX.")
    group: Filled | None = Field(default=None, description="Any node of one worker group.")

    def complaints(self) -> Iterator[Complaint]:
        """Complain unless a placement names exactly one thing."""
        if (self.name is None) == (self.group is None):
            yield Complaint((), "must have one of: name, group")


class RuntimeEnv(Section):
    """What is installed or set for the tasks, by Ray, on the nodes."""

    uv: Packages = Field(default=(), description="Packages to install with uv.")
    pip: Packages = Field(default=(), description="Packages to install with pip.")
    wheels: Listed[Filled] = Field(
        default=(), description="Wheel files to upload and install, relative to the job directory."
    )
    env_vars: TaskVariables = Field(default={}, description="Environment variables of the tasks' workers.")
    files: Listed[Filled] = Field(
        default=(), description="More files or directories to send along, also from outside the job directory."
    )

    @field_validator("wheels", "files")
    @classmethod
    def _check_files(cls, files: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        directory = (info.context or {}).get("directory")
        complain(file_complaints(files, directory, suffix=".whl" if info.field_name == "wheels" else ""))
        return files

    def complaints(self) -> Iterator[Complaint]:
        """Complain about two installers: Ray accepts one (ray.runtime_env)."""
        if self.uv and self.pip:
            yield Complaint((), "has both uv and pip: Ray accepts one of them")


class SmokeNeeds(Section):
    """What must hold on the cluster before this job may start."""

    gpus: bool = Field(
        default=False, description="true: at least one node has GPUs, and every GPU node passes its GPU checks."
    )
    torch: bool = Field(
        default=False,
        description="true: torch is importable on the GPU nodes (without any: on all) and sees their GPUs.",
    )
    transfer: bool = Field(
        default=True, description="false: leave out the transfer of objects between each pair of nodes."
    )
    min_nodes: int | None = Field(
        default=None, ge=1, le=10_000, description="At least so many nodes are alive, the head included."
    )
    min_disk: Size | None = Field(default=None, description="Free disk that every node must have.")
    min_shm: Size | None = Field(default=None, description="Free shared memory (/dev/shm) that every node must have.")


class TaskEntry(Section):
    """One task of an explicit list; what it leaves out comes from the job."""

    name: TaskName = Field(description="The task's name, unique in the job.")
    command: Command = Field(description="Program and arguments.")
    resources: Resources | None = Field(default=None, description="Only what differs from the job's.")
    node: Placement | None = Field(default=None, description="Instead of the job's.")
    env: TaskVariables = Field(default={}, description="On top of the job's.")
    retries: int | None = Field(default=None, ge=0, le=1000, description="Instead of the job's.")
    timeout: Duration | None = Field(default=None, description="Instead of the job's.")
    outputs: Outputs | None = Field(default=None, description="Instead of the job's.")

    @field_validator("command")
    @classmethod
    def _check_command(cls, command: tuple[str, ...]) -> tuple[str, ...]:
        complain(command_complaints(command, ()))
        return command

    @field_validator("env")
    @classmethod
    def _check_env(cls, env: dict[str, str]) -> dict[str, str]:
        complain(unknown(env, ()))
        return env


class JobSpec(Section):
    """A job file, validated. Its name is its directory's name."""

    name: str = Field(description="The name of the job's directory.")
    matrix: Matrix = Field(default={}, description="One task per combination; {key} in command and env is replaced.")
    command: Command | None = Field(
        default=None, description="Program and arguments; never joined into a shell string."
    )
    tasks: Listed[TaskEntry] | None = Field(
        default=None, validate_default=True, description="An explicit list of tasks, instead of command and matrix."
    )
    resources: Resources = Field(default=Resources(), description="What each task needs.")
    together: bool = Field(default=False, description="true: all tasks start at once, or none does.")
    retries: int = Field(
        default=0, ge=0, le=1000, description="How often a failed task is tried again; a lost node does not count."
    )
    timeout: Duration | None = Field(default=None, description="How long one attempt may take.")
    env: TaskVariables = Field(default={}, description="Environment variables of every task.")
    runtime_env: RuntimeEnv = Field(default=RuntimeEnv(), description="What Ray installs or sets for the tasks.")
    node: Placement | None = Field(default=None, description="Where tasks have to run.")
    outputs: Outputs = Field(default=(), description="What comes back besides $TRAINYARD_OUTPUT: relative paths.")
    outputs_each_attempt: bool = Field(
        default=False, description="true: every attempt starts with empty outputs, and they come back one by one."
    )
    outputs_limit: Size = Field(
        default=20 * 1024**3, ge=1, description="How much may come back of one task; what does not fit is left out."
    )
    outputs_every: Duration = Field(
        default=30.0, description="How often what has changed comes back while a task runs."
    )
    smoke: SmokeNeeds = Field(default=SmokeNeeds(), description="What must hold before this job may start.")

    @field_validator("command")
    @classmethod
    def _check_command(cls, command: tuple[str, ...] | None, info: ValidationInfo) -> tuple[str, ...] | None:
        if command is not None:
            complain(command_complaints(command, info.data.get("matrix")))
        return command

    @field_validator("tasks")
    @classmethod
    def _check_tasks(cls, tasks: tuple[TaskEntry, ...] | None, info: ValidationInfo) -> tuple[TaskEntry, ...] | None:
        has_command = info.data.get("command", "wrong") is not None
        if tasks is not None:
            complain(_task_complaints(tasks, has_command=has_command, has_matrix=bool(info.data.get("matrix"))))
        elif not has_command:
            complain([Complaint(("command",), "is missing: give command, or tasks", root=True)])
        return tasks

    @field_validator("env")
    @classmethod
    def _check_env(cls, env: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        if "matrix" in info.data:
            complain(unknown(env, info.data["matrix"]))
        return env

    def complaints(self) -> Iterator[Complaint]:
        """Complain about keys of the matrix that nothing uses."""
        return unused(self.matrix, (*(self.command or ()), *self.env.values()))


def _task_complaints(tasks: Sequence[TaskEntry], *, has_command: bool, has_matrix: bool) -> Iterator[Complaint]:
    """Complain about names that are there twice, and about a list beside a command or a matrix."""
    if not tasks:
        yield Complaint((), "must have at least one task")
    if len(tasks) > MOST_TASKS:
        yield Complaint((), f"has {len(tasks):,} tasks, and a job has at most {MOST_TASKS:,}")
    if has_command:
        yield Complaint((), "must not be given together with command: each task has its own")
    if has_matrix:
        yield Complaint((), "must not be given together with matrix: list every task, or use command and matrix")
    yield from same_names([task.name for task in tasks], "tasks")
