"""Build an image by `docker buildx`, and list what of a directory a build sees."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from docker.utils.build import exclude_paths

from trainyard.errors import PrerequisiteError, RequestError
from trainyard.seams import programs
from trainyard.seams.docker.engine import Engine
from trainyard.seams.programs import Ended

INSTALL = (
    "Install Docker 23 or newer with its command line and its buildx plugin (Debian, Ubuntu: docker-buildx, or "
    "docker-buildx-plugin from Docker)."
)
IGNORE_FILE = ".dockerignore"
# Builders know these without ARG, and keep them out of history and cache keys ("Predefined ARGs" of the reference).
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "NO_PROXY", "ALL_PROXY")
# What an image is must not depend on the builder's version: no attestations beside the manifest.
_PLAIN_MANIFEST = {"BUILDX_NO_DEFAULT_ATTESTATIONS": "1"}


@dataclass(frozen=True)
class BuildRequest:
    """An image to build. `write` writes the context, with its Dockerfile, as a tar stream.

    `secrets` are files that stages may mount by these names; they do not get into the image. `cached` are references of
    images whose layers may be used again.
    """

    reference: str
    write: Callable[[IO[bytes]], None]
    arguments: Mapping[str, str]
    labels: Mapping[str, str]
    platform: str | None = None
    network: str = "default"
    no_cache: bool = False
    secrets: Mapping[str, Path] | None = None
    cached: tuple[str, ...] = ()


def require(engine: Engine) -> None:
    """Raise PrerequisiteError where `docker buildx` is not installed: nothing else builds here."""
    ended = programs.run(["docker", "buildx", "version"], env=engine.cli_environment(), seconds=30.0)
    if ended.code != 0:
        raise PrerequisiteError(
            "images are built by `docker buildx`, which does not work here",
            where=ended.tail[0] if ended.tail else None,
            hint=INSTALL,
        )


def build(engine: Engine, request: BuildRequest, *, on_line: Callable[[str], None]) -> Ended:
    """Build with BuildKit; the image is named only if all went well. Every line goes to `on_line`."""
    return programs.run(
        command(engine.environ, request),
        env={**engine.cli_environment(), **_PLAIN_MANIFEST},
        stdin=request.write,
        on_line=on_line,
    )


def command(environ: Mapping[str, str], request: BuildRequest) -> list[str]:
    """Return the command that builds. Values of proxies stay out of it: buildx reads them from its environment."""
    # `default` is the builder inside of the engine itself, which has its images: no other could build on a base that
    # exists only there.
    words = ["docker", "buildx", "build", "--builder", "default", "--load", "--progress", "plain"]
    words += ["--tag", request.reference, "--network", request.network]
    words += ["--platform", request.platform] if request.platform else []
    words += ["--no-cache"] if request.no_cache else []
    # The image records what each layer was made of: a machine that has the image need not make them again.
    words += ["--cache-to", "type=inline", *(f"--cache-from={reference}" for reference in request.cached)]
    for name, value in sorted(request.arguments.items()):
        words += ["--build-arg", f"{name}={value}"]
    for name in sorted(name for upper in _PROXIES for name in (upper, upper.lower()) if environ.get(name)):
        words += ["--build-arg", name]
    for name, value in sorted(request.labels.items()):
        words += ["--label", f"{name}={value}"]
    for name, path in sorted((request.secrets or {}).items()):
        words += ["--secret", f"id={name},src={path}"]
    return [*words, "-"]


def context_files(directory: Path) -> list[str]:
    """Return files and directories by their path in a directory, without what its .dockerignore leaves out.

    This is Docker's own reading of that file. Raises RequestError for what cannot be read.
    """
    ignore = directory / IGNORE_FILE
    try:
        lines = ignore.read_text(encoding="utf-8").splitlines() if ignore.exists() else []
        patterns = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
        paths = exclude_paths(str(directory), patterns, dockerfile="Dockerfile")
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(
            "a part of the image cannot be read",
            where=str(error),
            hint="Make it readable for you, or name it in the image's .dockerignore.",
        ) from error
    return sorted(path for path in paths if path != IGNORE_FILE)
