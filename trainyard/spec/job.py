"""The job file: what to run, how often, and what each task needs."""

from __future__ import annotations

from pydantic import Field

from trainyard.spec.fields import Duration, Filled, Listed, Section, Size, Text, VariableName

MOST_TASKS = 100_000
Scalar = str | bool | int | float


class Resources(Section):
    """What one task needs."""

    cpus: float = Field(
        default=1.0, ge=0, le=1024, allow_inf_nan=False, description="CPUs of one task; fractions are allowed."
    )
    gpus: float = Field(
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


class RuntimeEnv(Section):
    """What is installed or set for the tasks, by Ray, on the nodes."""

    uv: Listed[Filled] = Field(default=(), description="Packages to install with uv.")
    pip: Listed[Filled] = Field(default=(), description="Packages to install with pip.")
    wheels: Listed[Filled] = Field(
        default=(), description="Wheel files to upload and install, relative to the job directory."
    )
    env_vars: dict[VariableName, Text] = Field(default={}, description="Environment variables of the tasks' workers.")
    files: Listed[Filled] = Field(
        default=(), description="More files or directories to send along, also from outside the job directory."
    )


class SmokeNeeds(Section):
    """What must hold on the cluster before this job may start."""

    gpus: bool = Field(
        default=False, description="true: at least one node has GPUs, and every GPU node passes its GPU checks."
    )
    torch: bool = Field(
        default=False,
        description="true: torch is importable on the GPU nodes (on all, without GPUs) and sees their GPUs.",
    )
    transfer: bool = Field(default=True, description="false: leave out the object transfer between each pair of nodes.")
    min_nodes: int | None = Field(
        default=None, ge=1, le=10_000, description="At least so many nodes are alive, the head included."
    )
    min_disk: Size | None = Field(default=None, description="Free disk that every node must have.")
    min_shm: Size | None = Field(default=None, description="Free shared memory (/dev/shm) that every node must have.")


class TaskEntry(Section):
    """One task of an explicit list; what it leaves out comes from the job."""

    name: Filled = Field(description="The task's name, unique in the job.")
    command: Listed[Text] = Field(description="Program and arguments.")
    resources: Resources | None = Field(default=None, description="Only what differs from the job's.")
    node: Placement | None = Field(default=None, description="Instead of the job's.")
    env: dict[VariableName, Text] = Field(default={}, description="On top of the job's.")
    retries: int | None = Field(default=None, ge=0, le=1000, description="Instead of the job's.")
    timeout: Duration | None = Field(default=None, description="Instead of the job's.")
    outputs: Listed[Filled] | None = Field(default=None, description="Instead of the job's.")


class JobSpec(Section):
    """A job file, validated. Its name is its directory's name."""

    name: str
    command: Listed[Text] | None = Field(
        default=None, description="Program and arguments; never joined into a shell string."
    )
    matrix: dict[str, Listed[Scalar]] = Field(
        default={}, description="One task per combination; {key} in command and env is replaced."
    )
    tasks: Listed[TaskEntry] | None = Field(
        default=None, description="An explicit list of tasks, instead of command and matrix."
    )
    resources: Resources = Field(default=Resources(), description="What each task needs.")
    together: bool = Field(default=False, description="true: all tasks start at once, or none does.")
    retries: int = Field(
        default=0, ge=0, le=1000, description="How often a failed task is tried again; a lost node does not count."
    )
    timeout: Duration | None = Field(default=None, description="How long one attempt may take.")
    env: dict[VariableName, Text] = Field(default={}, description="Environment variables of every task.")
    runtime_env: RuntimeEnv = Field(default=RuntimeEnv(), description="What Ray installs or sets for the tasks.")
    node: Placement | None = Field(default=None, description="Where tasks have to run.")
    outputs: Listed[Filled] = Field(
        default=(), description="What comes back when a task ends, besides $TRAINYARD_OUTPUT."
    )
    smoke: SmokeNeeds = Field(default=SmokeNeeds(), description="What must hold before this job may start.")
