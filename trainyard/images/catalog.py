"""Find images to build, in the user's images/, then among Trainyard's."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from trainyard import paths, versions
from trainyard.errors import Problem, RequestError
from trainyard.spec.image import RAY_PLACEHOLDER, ImageFile
from trainyard.spec.load import IMAGE_FILE_NAME, load_image
from trainyard.wording import did_you_mean

DEFAULT_IMAGE = "ray-cpu"
# A directory's name becomes one component of an image reference (distribution/reference).
_COMPONENT = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*")


@dataclass(frozen=True)
class Image:
    """The directory of an image that can be built on `base`."""

    name: str
    directory: Path
    file: ImageFile
    base: str

    @property
    def repository(self) -> str:
        return f"trainyard/{self.name}"

    @property
    def alias(self) -> str:
        """Return the readable tag, which moves with each build."""
        return f"ray-{versions.RAY}"

    @property
    def arguments(self) -> dict[str, str]:
        own = {name: _filled(value) for name, value in self.file.arguments.items()}
        return {**own, "BASE": self.base, "RAY_VERSION": versions.RAY}


def find(name: str, *, directory: Path, base: str | None = None) -> Image:
    """Find an image by its name under images/, or by a path.

    `base` replaces the base in image.yaml. Raises RequestError if there is no
    such image, or if the directory's name cannot be an image's name.
    """
    bare = name.removeprefix("images/").rstrip("/")
    if "/" in bare:
        candidates = []
    else:
        candidates = [directory / "images" / bare, paths.shipped("images") / bare]

    candidates += [directory / name] if "/" in name else []
    path = next((path for path in candidates if (path / IMAGE_FILE_NAME).is_file()), None)
    if path is None:
        known = paths.image_names(directory)
        message = (
            f"{name!r} is neither a directory with an {IMAGE_FILE_NAME} nor one of: "
            f"{', '.join(known)}"
        )
        raise RequestError(
            f"no such image: {name}",
            problems=(Problem("IMAGE", message + did_you_mean(name, known)),),
        )

    own = path.resolve().name
    if not _COMPONENT.fullmatch(own):
        message = (
            f"{own!r} cannot be the name of an image: lower-case letters, digits, '.', '_' and '-'"
        )
        raise RequestError(f"no image can be called {own}", problems=(Problem(str(path), message),))

    file = load_image(path)
    return Image(own, path, file, base or _filled(file.base))


def is_reference(text: str, *, directory: Path) -> bool:
    """Say whether `image:` names a finished image instead of a directory."""
    return (
        any(mark in text for mark in "/:@") and not (directory / text / IMAGE_FILE_NAME).is_file()
    )


def _filled(text: str) -> str:
    return text.replace(RAY_PLACEHOLDER, versions.RAY)
