"""What `image.lint` must find in an image: a section of image.yaml."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from trainyard.spec import cluster_rules as rules
from trainyard.spec.fields import Filled, Listed, Section, Size, Variables

AbsolutePath = Annotated[Filled, AfterValidator(rules.check_absolute_path)]


class LintSection(Section):
    """What must hold in this image, besides what must hold in every image."""

    max_size: Size | None = Field(default=None, description="The most that the image may take, uncompressed.")
    python: AbsolutePath | None = Field(default=None, description="The Python that Ray and the jobs run under.")
    must_have: Listed[AbsolutePath] = Field(default=(), description="Files and directories that must be there.")
    programs: Listed[Filled] = Field(default=(), description="Programs that must be found on PATH.")
    path_contains: Listed[AbsolutePath] = Field(default=(), description="Directories that PATH must list.")
    ld_library_path_contains: Listed[AbsolutePath] = Field(
        default=(), description="Directories that LD_LIBRARY_PATH must list."
    )
    environ: Variables = Field(default={}, description="Environment variables and the values they must have.")
    imports: Listed[Filled] = Field(default=(), description="Python modules that must be importable.")
    entry_point: Filled | None = Field(
        default=None, description="The function that jobs start, module:function; it must not wait for a key."
    )
    wget: bool = Field(default=True, description="false: nothing probes the nodes with wget.")
