"""A Dockerfile as the classic builder takes it: without the mounts that only BuildKit knows."""

from __future__ import annotations

import re

from trainyard.errors import PrerequisiteError

BUILDX_HINT = "Install Docker's buildx plugin (Debian, Ubuntu: docker-buildx, or docker-buildx-plugin from Docker)."

# A mount whose absence only makes a build slower, or lets it see less of the outside; `bind` brings files.
_OPTIONAL = frozenset({"cache", "secret", "ssh", "tmpfs"})
_RUN = re.compile(r"^(?P<run>[ \t]*RUN[ \t]+)(?P<flags>(?:--mount=\S+(?:[ \t]+|[ \t]*\\\r?\n[ \t]*)+)+)", re.I | re.M)
_MOUNT = re.compile(r"--mount=(\S+)")


def without_mounts(text: str) -> str:
    """Return a Dockerfile without `RUN --mount=...`.

    Raises PrerequisiteError for a mount that the build cannot do without.
    """
    return _RUN.sub(_run, text)


def _run(found: re.Match[str]) -> str:
    for mount in _MOUNT.findall(found["flags"]):
        options = dict(option.partition("=")[::2] for option in mount.split(","))
        kind = options.get("type", "bind")
        if kind not in _OPTIONAL or options.get("required", "false").lower() not in ("false", "0"):
            raise PrerequisiteError(f"this Dockerfile needs BuildKit: RUN --mount={mount}", hint=BUILDX_HINT)
    return found["run"]
