"""The image file: what a directory of images/ is built from, and what must be found in it afterwards."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, field_validator

from trainyard.spec import image_rules as rules
from trainyard.spec.fields import Filled, Section, Variables
from trainyard.spec.lint import LintSection

BaseReference = Annotated[Filled, AfterValidator(rules.check_base)]
ContextPath = Annotated[Filled, AfterValidator(rules.check_context_path)]


class ImageFile(Section):
    """An image.yaml, validated. `{ray}` in base and arguments stands for the Ray version that clusters run."""

    base: BaseReference = Field(description="The image to build on, such as python:3.12-slim; `--base` replaces it.")
    arguments: Variables = Field(
        default={}, description="Build arguments for the Dockerfile; BASE and RAY_VERSION are always given."
    )
    contents: dict[ContextPath, Filled] = Field(
        default={},
        description="What the build sees besides this directory: a name there, and the path of a file or directory.",
    )
    user: Literal["root", "non-root", "any"] = Field(
        default="any", description="Who the image must run as: non-root for programs that refuse to run as root."
    )
    lint: LintSection = Field(default=LintSection(), description="What `image.lint` must find.")

    @field_validator("arguments")
    @classmethod
    def _check_arguments(cls, arguments: dict[str, str]) -> dict[str, str]:
        rules.check_arguments(arguments)
        return arguments
