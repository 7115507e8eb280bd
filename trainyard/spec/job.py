"""The job file: what to run, how often, and what each task needs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, WithJsonSchema, field_validator
from pydantic import model_validator as validates

from trainyard.spec import job_rules as rules
from trainyard.spec.fields import Duration, Filled, Listed, Section, Size, Text, Variables, check_unique
from trainyard.spec.placeholders import check_placeholders, check_used

Scalar = Annotated[rules.Scalar, BeforeValidator(rules.check_scalar)]
Matrix = Annotated[
    dict[Annotated[str, AfterValidator(rules.check_matrix_key)], Listed[Scalar]],
    WithJsonSchema(
        {
            "type": "object",
            "propertyNames": {"pattern": rules.KEY_PATTERN},
            "additionalProperties": {
                "type": "array",
                "items": {"type": ["string", "number", "boolean"]},
                "minItems": 1,
                "uniqueItems": True,
            },
        }
    ),
]
Command = Annotated[Listed[Text], WithJsonSchema({"type": "array", "items": {"type": "string"}, "minItems": 1})]
TaskName = Annotated[
    str, AfterValidator(rules.check_task_name), WithJsonSchema({"type": "string", "pattern": rules.TASK_PATTERN})
]
Output = Annotated[Filled, AfterValidator(rules.check_output)]
Cpus = Annotated[float, AfterValidator(rules.check_cpus)]
Gpus = Annotated[float, AfterValidator(rules.check_gpus)]


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

    @validates(mode="after")
    def _check(self) -> Placement:
        rules.check_placement(self.name, self.group)
        return self


class RuntimeEnv(Section):
    """What is installed or set for the tasks, by Ray, on the nodes."""

    uv: Listed[Filled] = Field(default=(), description="Packages to install with uv.")
    pip: Listed[Filled] = Field(default=(), description="Packages to install with pip.")
    wheels: Listed[Filled] = Field(
        default=(), description="Wheel files to upload and install, relative to the job directory."
    )
    env_vars: Variables = Field(default={}, description="Environment variables of the tasks' workers.")
    files: Listed[Filled] = Field(
        default=(), description="More files or directories to send along, also from outside the job directory."
    )

    @field_validator("uv", "pip")
    @classmethod
    def _check_packages(cls, packages: tuple[str, ...]) -> tuple[str, ...]:
        check_unique(packages)
        return packages

    @field_validator("wheels")
    @classmethod
    def _check_wheels(cls, wheels: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        rules.check_wheels(wheels, _directory(info))
        return wheels

    @field_validator("files")
    @classmethod
    def _check_files(cls, files: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        rules.check_files(files, _directory(info))
        return files

    @field_validator("env_vars")
    @classmethod
    def _check_env_vars(cls, env_vars: dict[str, str]) -> dict[str, str]:
        rules.check_variables_of_tasks(env_vars)
        return env_vars

    @validates(mode="after")
    def _check(self) -> RuntimeEnv:
        rules.check_installers(uv=bool(self.uv), pip=bool(self.pip))
        return self


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
    env: Variables = Field(default={}, description="On top of the job's.")
    retries: int | None = Field(default=None, ge=0, le=1000, description="Instead of the job's.")
    timeout: Duration | None = Field(default=None, description="Instead of the job's.")
    outputs: Listed[Output] | None = Field(default=None, description="Instead of the job's.")

    @field_validator("command")
    @classmethod
    def _check_command(cls, command: tuple[str, ...]) -> tuple[str, ...]:
        rules.check_command(command, ())
        return command

    @field_validator("env")
    @classmethod
    def _check_env(cls, env: dict[str, str]) -> dict[str, str]:
        rules.check_variables_of_tasks(env)
        check_placeholders(env, ())
        return env

    @field_validator("outputs")
    @classmethod
    def _check_outputs(cls, outputs: tuple[str, ...] | None) -> tuple[str, ...] | None:
        check_unique(outputs or ())
        return outputs


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
    env: Variables = Field(default={}, description="Environment variables of every task.")
    runtime_env: RuntimeEnv = Field(default=RuntimeEnv(), description="What Ray installs or sets for the tasks.")
    node: Placement | None = Field(default=None, description="Where tasks have to run.")
    outputs: Listed[Output] = Field(
        default=(), description="What comes back besides $TRAINYARD_OUTPUT: relative paths."
    )
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

    @field_validator("matrix")
    @classmethod
    def _check_matrix(cls, matrix: dict[str, tuple[rules.Scalar, ...]]) -> dict[str, tuple[rules.Scalar, ...]]:
        rules.check_matrix(matrix)
        return matrix

    @field_validator("command")
    @classmethod
    def _check_command(cls, command: tuple[str, ...] | None, info: ValidationInfo) -> tuple[str, ...] | None:
        if command is not None:
            rules.check_command(command, info.data.get("matrix"))
        return command

    @field_validator("tasks")
    @classmethod
    def _check_tasks(cls, tasks: tuple[TaskEntry, ...] | None, info: ValidationInfo) -> tuple[TaskEntry, ...] | None:
        has_command = info.data.get("command", "wrong") is not None
        rules.check_something_to_run(is_tasks=tasks is not None, has_command=has_command)
        if tasks is not None:
            names = [task.name for task in tasks]
            rules.check_tasks(names, has_command=has_command, has_matrix=bool(info.data.get("matrix")))
        return tasks

    @field_validator("env")
    @classmethod
    def _check_env(cls, env: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        rules.check_variables_of_tasks(env)
        if "matrix" in info.data:
            check_placeholders(env, info.data["matrix"])
        return env

    @field_validator("outputs")
    @classmethod
    def _check_outputs(cls, outputs: tuple[str, ...]) -> tuple[str, ...]:
        check_unique(outputs)
        return outputs

    @validates(mode="after")
    def _check_use(self) -> JobSpec:
        check_used(self.matrix, (*(self.command or ()), *self.env.values()))
        return self


def _directory(info: ValidationInfo) -> Path | None:
    """Return the job's directory where a file is being loaded."""
    return (info.context or {}).get("directory")
