"""Where images come from and go to, and the Docker host that runs them: sections of the cluster file."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from trainyard.spec import cluster_rules as rules
from trainyard.spec.fields import Filled, Listed, Section, Size, VariableName

RegistryAddress = Annotated[Filled, AfterValidator(rules.check_registry_address)]
DockerHost = Annotated[Filled, AfterValidator(rules.check_docker_host)]
AbsolutePath = Annotated[Filled, AfterValidator(rules.check_absolute_path)]
Platform = Annotated[Filled, AfterValidator(rules.check_platform)]
Namespace = Annotated[Filled, AfterValidator(rules.check_namespace)]


class Registry(Section):
    """Where images are pushed to, and where the nodes pull them from."""

    address: RegistryAddress = Field(description="HOST:PORT, the same for whoever pushes and whoever pulls.")
    namespace: Namespace | None = Field(
        default=None, description="What stands between the address and an image's name, such as team/robots."
    )
    insecure: bool = Field(default=False, description="true: plain HTTP, without TLS.")
    ca_file: Filled | None = Field(
        default=None,
        description="The CA of the registry's certificate; left out: a public one, or what registry.up made.",
    )
    username: Filled | None = Field(default=None, description="Who logs in; nobody if left out.")
    password_env: VariableName | None = Field(
        default=None,
        description="The environment variable that holds the password; the password itself is never written.",
    )
    password_file: Filled | None = Field(default=None, description="The file that holds the password.")
    login: Literal["docker", "ecr"] = Field(
        default="docker",
        description="docker: the user above, else what `docker login` keeps. ecr: what AWS gives for 12 hours.",
    )
    image: Filled = Field(
        default="registry:2", description="What `registry.up` runs; a mirror's name where there is one."
    )

    @model_validator(mode="after")
    def _check(self) -> Registry:
        rules.check_login(self.username, self.password_env, self.password_file)
        rules.check_login_kind(self.login, self.username)
        return self

    def repository(self, image: str) -> str:
        """Return what the registry calls an image of ours: NAMESPACE/IMAGE."""
        return f"{self.namespace}/{image}" if self.namespace else image


class BuildSection(Section):
    """What a build needs to reach the outside; nothing of it stays in the image."""

    ca_bundle: Filled | None = Field(
        default=None, description="A PEM file with every CA to trust during the build, such as a company's proxy's."
    )
    pip_config: Filled | None = Field(
        default=None, description="A pip.conf for the build, for an index of one's own; it may hold a password."
    )
    network: Literal["default", "host"] = Field(default="default", description="host: build in this host's network.")
    base: Filled | None = Field(default=None, description="The base image, instead of the one that image.yaml names.")
    platform: Platform | None = Field(
        default=None, description="What the nodes are, such as linux/arm64; left out: what the Docker host is."
    )


class Mount(Section):
    """A directory of the Docker host that every node sees."""

    source: AbsolutePath = Field(description="The directory on the Docker host.")
    target: AbsolutePath = Field(description="Where the nodes see it.")
    read_only: bool = Field(default=False, description="true: the nodes cannot change it.")


class ComposeSection(Section):
    """Head and workers as containers of one Docker host."""

    docker: DockerHost | None = Field(
        default=None,
        description="The Docker host: ssh://user@host, or unix:///path; left out: what `docker` itself talks to here.",
    )
    shm_size: Size | None = Field(
        default=None,
        description="The shared memory of each node, which holds Ray's object store; left out: what it needs.",
    )
    mounts: Listed[Mount] = Field(default=(), description="Directories of the Docker host that every node sees.")
    outputs: AbsolutePath = Field(
        default="/outputs",
        description="Where every node sees the volume that the nodes share; `cluster.down` removes it.",
    )
    dashboard_port: int | None = Field(
        default=None, ge=1024, le=65535, description="Where the dashboard answers on loopback; left out: a free port."
    )
    simulated_gpus: bool = Field(
        default=False,
        description="true: nodes may declare GPUs that the Docker host does not have, to try a job's layout.",
    )
