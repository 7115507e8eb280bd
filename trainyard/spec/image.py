"""The image file: what a directory of images/ is built from, and what must be found in it afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from trainyard.spec.docker import check_image
from trainyard.spec.fields import (
    AbsolutePath,
    Complaint,
    Filled,
    Listed,
    Section,
    Size,
    Text,
    Variables,
    matching,
    rule,
    setting,
    unusable,
)

RAY_PLACEHOLDER = "{ray}"
GIVEN_ARGUMENTS = ("BASE", "RAY_VERSION")
_MODULE = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*"


def _base(base: str) -> str:
    """Return the reference of a base image, in which `{ray}` may stand for a version."""
    check_image(base.replace(RAY_PLACEHOLDER, "0"))
    return base


def _context_path(path: str) -> str:
    if path.startswith("/") or ".." in path.split("/") or path.strip("/.") == "":
        raise ValueError("must be a path inside of the image's directory, without '..'")
    return path.strip("/")


def _command(command: tuple[str, ...]) -> tuple[str, ...]:
    if not command or not command[0]:
        raise ValueError("must be a program and its arguments, as a list")
    return command


def _unusable(arguments: Mapping[str, str]) -> Iterator[Complaint]:
    """Complain about build arguments that Trainyard gives itself."""
    return unusable(arguments, lambda name: "is given by Trainyard" if name in GIVEN_ARGUMENTS else None)


Base = Annotated[Filled, AfterValidator(_base)]
ContextPath = Annotated[Filled, AfterValidator(_context_path)]
Arguments = Annotated[Variables, rule(_unusable)]
Program = Annotated[
    Filled,
    matching(r"[A-Za-z0-9._+-]+", "must be a program's name without a directory; files belong to must_have"),
]
Module = Annotated[Filled, matching(_MODULE, "must be the name of a Python module, such as schola.scripts.ray")]
Function = Annotated[
    Filled,
    matching(rf"{_MODULE}:{_MODULE}", "must be module:function, such as schola.scripts.ray.launch:main_from_cli"),
]
Command = Annotated[Listed[Text], AfterValidator(_command)]


class LintSection(Section):
    """What must hold in this image, besides what must hold in every image."""

    max_size: Size | None = setting(None, "The most that the image may take, uncompressed.")
    python: AbsolutePath | None = setting(
        None, "The Python that Ray and the jobs run under; left out: the one that `ray` starts."
    )
    ray_interpreter: AbsolutePath | None = setting(
        None, "What the first line of `ray` must name; for Pythons that only work through a script of their own."
    )
    must_have: Listed[AbsolutePath] = setting((), "Files and directories that must be there.")
    programs: Listed[Program] = setting((), "Programs that must be found on PATH.")
    path_contains: Listed[AbsolutePath] = setting((), "Directories that PATH must list.")
    ld_library_path_contains: Listed[AbsolutePath] = setting((), "Directories that LD_LIBRARY_PATH must list.")
    environ: Variables = setting({}, "Environment variables and the values they must have.")
    imports: Listed[Module] = setting((), "Python modules that must be importable.")
    entry_point: Function | None = setting(
        None, "The function that jobs start, module:function; called with --help, it must end without a key."
    )
    runs: Listed[Command] = setting((), "Commands, as lists, that must succeed with nobody at the keyboard.")
    wget: bool = setting(True, "false: only KubeRay 1.6 and newer runs it, which probes Ray 2.53 and newer by HTTP.")


class ImageFile(Section):
    """An image.yaml, validated. `{ray}` in base and arguments stands for the Ray version that clusters run."""

    base: Base = Field(description="The image to build on, such as python:3.12-slim; `--base` replaces it.")
    arguments: Arguments = setting({}, "Build arguments for the Dockerfile; BASE and RAY_VERSION are always given.")
    contents: dict[ContextPath, Filled] = setting(
        {}, "What the build sees besides this directory: a name there, and the path of a file or directory."
    )
    user: Literal["root", "non-root", "any"] = setting(
        "any", "Who the image must run as: non-root for programs that refuse to run as root."
    )
    lint: LintSection = setting(LintSection(), "What `image.lint` must find.")
