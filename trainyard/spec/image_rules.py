"""What an image file must get right beyond the kinds of its values."""

from __future__ import annotations

from trainyard.spec.cluster_rules import check_image
from trainyard.spec.fields import check_variables

RAY_PLACEHOLDER = "{ray}"
GIVEN_ARGUMENTS = ("BASE", "RAY_VERSION")


def check_base(base: str) -> str:
    """Return the reference of a base image, in which `{ray}` may stand for a version."""
    check_image(base.replace(RAY_PLACEHOLDER, "0"))
    return base


def check_context_path(path: str) -> str:
    """Return a path below the directory that the build sees."""
    if path.startswith("/") or ".." in path.split("/") or path.strip("/.") == "":
        raise ValueError("must be a path inside of the image's directory, without '..'")
    return path.strip("/")


def check_arguments(arguments: dict[str, str]) -> None:
    """Complain about build arguments that Trainyard gives itself."""
    check_variables(arguments, lambda name: "is given by Trainyard" if name in GIVEN_ARGUMENTS else None)
