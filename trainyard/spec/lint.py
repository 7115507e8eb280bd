"""What `image.lint` must find in an image: a section of image.yaml."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from trainyard.spec import cluster_rules as rules
from trainyard.spec.fields import Filled, Listed, Section, Size, Text, Variables

_MODULE = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*"


def check_module(name: str) -> str:
    """Return what may stand after `import`."""
    if not re.fullmatch(_MODULE, name):
        raise ValueError("must be the name of a Python module, such as schola.scripts.ray")
    return name


def check_function(name: str) -> str:
    """Return module:function."""
    if not re.fullmatch(rf"{_MODULE}:{_MODULE}", name):
        raise ValueError("must be module:function, such as schola.scripts.ray.launch:main_from_cli")
    return name


def check_command(command: tuple[str, ...]) -> tuple[str, ...]:
    """Return a command that names a program."""
    if not command or not command[0]:
        raise ValueError("must be a program and its arguments, as a list")
    return command


def check_program(name: str) -> str:
    """Return the name of a program, as a shell would look it up."""
    if not re.fullmatch(r"[A-Za-z0-9._+-]+", name):
        raise ValueError("must be a program's name without a directory; files belong to must_have")
    return name


AbsolutePath = Annotated[Filled, AfterValidator(rules.check_absolute_path)]
Program = Annotated[Filled, AfterValidator(check_program)]
Module = Annotated[Filled, AfterValidator(check_module)]
Function = Annotated[Filled, AfterValidator(check_function)]
Command = Annotated[Listed[Text], AfterValidator(check_command)]


class LintSection(Section):
    """What must hold in this image, besides what must hold in every image."""

    max_size: Size | None = Field(default=None, description="The most that the image may take, uncompressed.")
    python: AbsolutePath | None = Field(
        default=None, description="The Python that Ray and the jobs run under; left out: the one that `ray` starts."
    )
    ray_interpreter: AbsolutePath | None = Field(
        default=None,
        description="What the first line of `ray` must name; for Pythons that only work through a script of their own.",
    )
    must_have: Listed[AbsolutePath] = Field(default=(), description="Files and directories that must be there.")
    programs: Listed[Program] = Field(default=(), description="Programs that must be found on PATH.")
    path_contains: Listed[AbsolutePath] = Field(default=(), description="Directories that PATH must list.")
    ld_library_path_contains: Listed[AbsolutePath] = Field(
        default=(), description="Directories that LD_LIBRARY_PATH must list."
    )
    environ: Variables = Field(default={}, description="Environment variables and the values they must have.")
    imports: Listed[Module] = Field(default=(), description="Python modules that must be importable.")
    entry_point: Function | None = Field(
        default=None,
        description="The function that jobs start, module:function; called with --help, it must end without a key.",
    )
    runs: Listed[Command] = Field(
        default=(), description="Commands, as lists, that must succeed with nobody at the keyboard."
    )
    wget: bool = Field(
        default=True, description="false: only KubeRay 1.6 and newer runs it, which probes Ray 2.53 and newer by HTTP."
    )
    not_secret: Listed[Filled] = Field(
        default=(), description="Patterns of files that look like secrets and are none, such as /etc/app/*.key."
    )
