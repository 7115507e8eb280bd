"""The file images/NAME/image.yaml: an image's build and its checks."""

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
    """Check a base image's reference; `{ray}` is filled later."""
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
    """Conditions for this image, in addition to those for every image."""

    max_size: Size | None = setting(None, "The most that the image may take, uncompressed.")
    python: AbsolutePath | None = setting(
        None, "The Python that Ray and the jobs run under; left out: the one that `ray` starts."
    )
    ray_interpreter: AbsolutePath | None = setting(
        None,
        "The interpreter that the first line of the program `ray` must name, for a Python that "
        "only works through a wrapper script.",
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
        "The function that jobs start, as module:function; called with --help, it must end "
        "without waiting for a key.",
    )
    runs: Listed[Command] = setting((), "Commands, as lists, that must succeed without a keyboard.")
    wget: bool = setting(
        True,
        "false: the image may lack wget. Then only KubeRay 1.6 and newer can run it, because it "
        "probes Ray 2.53 and newer by HTTP.",
    )


class ImageFile(Section):
    """A validated image.yaml.

    `{ray}` in base and arguments is the Ray version of clusters.
    """

    base: Base = Field(
        description="The image to build on, such as python:3.12-slim; `--base` replaces it."
    )
    arguments: Variables = setting(
        {}, "Build arguments for the Dockerfile; BASE and RAY_VERSION are always given."
    )
    contents: dict[ContextPath, Filled] = setting(
        {},
        "More files or directories for the build: the name that the build sees, and the path here.",
    )
    user: Literal["root", "non-root", "any"] = setting(
        "any", "The user of the image: non-root for programs that refuse to run as root."
    )
    lint: LintSection = setting(LintSection(), "What `image.lint` must find.")
