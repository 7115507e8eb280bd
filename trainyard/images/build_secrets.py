"""The files of this machine that stages of a build may read, and that stay out of the image."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from trainyard.errors import PrerequisiteError
from trainyard.images.dockerfile import BUILDX_HINT
from trainyard.spec.docker import BuildSection


def files(settings: BuildSection) -> Mapping[str, Path]:
    """Return the files that stages may mount. Raises PrerequisiteError for one that is not there."""
    named = {"ca_bundle": settings.ca_bundle, "pip_config": settings.pip_config}
    found = {name: Path(path).expanduser().resolve() for name, path in named.items() if path}
    for name, path in found.items():
        if not path.is_file():
            raise PrerequisiteError(f"build.{name} is not a file: {path}", hint="Put it there, or name another one.")
    return found


def refuse(secrets: Mapping[str, Path]) -> None:
    """Raise PrerequisiteError if there are any: this build cannot keep them out of the image."""
    if secrets:
        names = " and ".join(f"build.{name}" for name in sorted(secrets))
        raise PrerequisiteError(
            f"without docker buildx, {names} would stay in the image: the engine's own builder has no secrets",
            hint=BUILDX_HINT,
        )
