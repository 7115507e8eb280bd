"""The image file: the build of a directory of images/, and what the image must have."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from trainyard.spec.docker import check_image
from trainyard.spec.fields import (
    AbsolutePath,
    Command,
    Filled,
    Listed,
    Section,
    Size,
    Variables,
    matching,
    setting,
)

RAY_PLACEHOLDER = "{ray}"
_MODULE = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*"


def _base(base: str) -> str:
    """Return the reference of a base image, in which `{ray}` may stand for a version."""
    check_image(base.replace(RAY_PLACEHOLDER, "0"))
    return base


def _context_path(path: str) -> str:
    if path.startswith("/") or ".." in path.split("/") or path.strip("/.") == "":
        raise ValueError("must be a path inside of the image's directory, without '..'")
    return path.strip("/")


Base = Annotated[Filled, AfterValidator(_base)]
ContextPath = Annotated[Filled, AfterValidator(_context_path)]
Function = Annotated[
    Filled,
    matching(
        rf"{_MODULE}:{_MODULE}",
        "must be module:function, such as schola.scripts.ray.launch:main_from_cli",
    ),
]


class LintSection(Section):
    """Conditions on this image, besides those on every image."""

    max_size: Size | None = setting(None, "The most that the image may take, uncompressed.")
    python: AbsolutePath | None = setting(
        None, "The Python that Ray and the jobs run under; left out: the one that `ray` starts."
    )
    ray_interpreter: AbsolutePath | None = setting(
        None,
        "What the first line of `ray` must name; for Pythons that only work through a script of "
        "their own.",
    )
    must_have: Listed[AbsolutePath] = setting((), "Files and directories that must be there.")
    programs: Listed[Filled] = setting((), "Programs that must be found on PATH.")
    path_contains: Listed[AbsolutePath] = setting((), "Directories that PATH must list.")
    ld_library_path_contains: Listed[AbsolutePath] = setting(
        (), "Directories that LD_LIBRARY_PATH must list."
    )
    environ: Variables = setting({}, "Environment variables and the values they must have.")
    imports: Listed[Filled] = setting((), "Python modules that must be importable.")
    entry_point: Function | None = setting(
        None,
        "The function that jobs start, module:function; called with --help, it must end without "
        "a key.",
    )
    runs: Listed[Command] = setting((), "Commands, as lists, that must succeed without a keyboard.")
    wget: bool = setting(
        True, "false: only KubeRay 1.6 and newer runs it, which probes Ray 2.53 and newer by HTTP."
    )


class ImageFile(Section):
    """An image.yaml, validated; `{ray}` in base and arguments is the Ray version of clusters."""

    base: Base = Field(
        description="The image to build on, such as python:3.12-slim; `--base` replaces it."
    )
    arguments: Variables = setting(
        {}, "Build arguments for the Dockerfile; BASE and RAY_VERSION are always given."
    )
    contents: dict[ContextPath, Filled] = setting(
        {},
        "What the build sees besides this directory: a name there, and the path of a file or "
        "directory.",
    )
    user: Literal["root", "non-root", "any"] = setting(
        "any", "Who the image must run as: non-root for programs that refuse to run as root."
    )
    lint: LintSection = setting(LintSection(), "What `image.lint` must find.")
