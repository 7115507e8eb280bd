"""The job file: what to run, how often, and what each task needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pydantic import Field, ValidationInfo, field_validator

from trainyard.spec.fields import Complaint, Duration, Filled, Listed, Section, Size, complain, same_names, setting
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

    cpus: Cpus = setting(1.0, "CPUs of one task; fractions are allowed.", ge=0, le=1024, allow_inf_nan=False)
    gpus: Gpus = setting(
        0.0, "A fraction below 1 shares one GPU, a whole number isolates.", ge=0, le=64, allow_inf_nan=False
    )
    memory: Size | None = setting(None, "Memory that is set aside for one task.")


class Placement(Section):
    """Where a task has to run."""

    name: Filled | None = setting(None, "One node: `head`, or GROUP-INDEX.")
    group: Filled | None = setting(None, "Any node of one worker group.")

    def complaints(self) -> Iterator[Complaint]:
        """Complain unless a placement names exactly one thing."""
        if (self.name is None) == (self.group is None):
            yield Complaint((), "must have one of: name, group")


class RuntimeEnv(Section):
    """What is installed or set for the tasks, by Ray, on the nodes."""

    uv: Packages = setting((), "Packages to install with uv.")
    pip: Packages = setting((), "Packages to install with pip.")
    wheels: Listed[Filled] = setting((), "Wheel files to upload and install, relative to the job directory.")
    env_vars: TaskVariables = setting({}, "Environment variables of the tasks' workers.")
    files: Listed[Filled] = setting((), "More files or directories to send along, also from outside the job directory.")

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

    gpus: bool = setting(False, "true: at least one node has GPUs, and every GPU node passes its GPU checks.")
    torch: bool = setting(
        False, "true: torch is importable on the GPU nodes (without any: on all) and sees their GPUs."
    )
    transfer: bool = setting(True, "false: leave out the transfer of objects between each pair of nodes.")
    min_nodes: int | None = setting(None, "At least so many nodes are alive, the head included.", ge=1, le=10_000)
    min_disk: Size | None = setting(None, "Free disk that every node must have.")
    min_shm: Size | None = setting(None, "Free shared memory (/dev/shm) that every node must have.")


class TaskEntry(Section):
    """One task of an explicit list; what it leaves out comes from the job."""

    name: TaskName = Field(description="The task's name, unique in the job.")
    command: Command = Field(description="Program and arguments.")
    resources: Resources | None = setting(None, "Only what differs from the job's.")
    node: Placement | None = setting(None, "Instead of the job's.")
    env: TaskVariables = setting({}, "On top of the job's.")
    retries: int | None = setting(None, "Instead of the job's.", ge=0, le=1000)
    timeout: Duration | None = setting(None, "Instead of the job's.")
    outputs: Outputs | None = setting(None, "Instead of the job's.")

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
    matrix: Matrix = setting({}, "One task per combination; {key} in command and env is replaced.")
    command: Command | None = setting(None, "Program and arguments; never joined into a shell string.")
    tasks: Listed[TaskEntry] | None = setting(
        None, "An explicit list of tasks, instead of command and matrix.", validate_default=True
    )
    resources: Resources = setting(Resources(), "What each task needs.")
    together: bool = setting(False, "true: all tasks start at once, or none does.")
    retries: int = setting(0, "How often a failed task is tried again; a lost node does not count.", ge=0, le=1000)
    timeout: Duration | None = setting(None, "How long one attempt may take.")
    env: TaskVariables = setting({}, "Environment variables of every task.")
    runtime_env: RuntimeEnv = setting(RuntimeEnv(), "What Ray installs or sets for the tasks.")
    node: Placement | None = setting(None, "Where tasks have to run.")
    outputs: Outputs = setting((), "What comes back besides $TRAINYARD_OUTPUT: relative paths.")
    outputs_each_attempt: bool = setting(
        False, "true: every attempt starts with empty outputs, and they come back one by one."
    )
    outputs_limit: Size = setting(
        20 * 1024**3, "How much may come back of one task; what does not fit is left out.", ge=1
    )
    outputs_every: Duration = setting(30.0, "How often what has changed comes back while a task runs.")
    smoke: SmokeNeeds = setting(SmokeNeeds(), "What must hold before this job may start.")

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
