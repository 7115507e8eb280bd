"""The `docker` command, for what the API cannot do: buildx and Compose."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from docker.utils.build import exclude_paths

from trainyard.errors import OutsideError, PrerequisiteError
from trainyard.seams import programs
from trainyard.seams.docker.engine import Engine
from trainyard.seams.programs import Ended

BUILDX = (
    "Install Docker 23 or newer with its command line and its buildx plugin "
    "(Debian, Ubuntu: docker-buildx, or docker-buildx-plugin from Docker)."
)
COMPOSE = (
    "Install Docker's Compose plugin, 2.20 or newer: sudo apt-get install "
    "docker-compose-v2 (or docker-compose-plugin)"
)
IGNORE_FILE = ".dockerignore"
# Builders accept these build arguments without ARG, and keep them out of history and cache keys
# ("Predefined ARGs" of the Dockerfile reference).
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "NO_PROXY", "ALL_PROXY")
# The limit for one Compose command; a busy machine makes many containers slowly.
COMPOSE_SECONDS = 600.0
LAST_LINES = 5


def require(engine: Engine, plugin: str, *, hint: str) -> None:
    """Raise PrerequisiteError if `docker` lacks a plugin: buildx or compose."""
    ended = programs.run(["docker", plugin, "version"], env=engine.cli_environment(), seconds=30.0)
    if ended.code != 0:
        raise PrerequisiteError(
            f"`docker {plugin}` does not work here", where=" ".join(ended.tail[:1]), hint=hint
        )


def build(
    engine: Engine,
    command: list[str],
    *,
    context: Callable[[IO[bytes]], None],
    on_line: Callable[[str], None],
) -> Ended:
    """Build with BuildKit; the image gets its name only if the build succeeds.

    `context` writes the build's files, Dockerfile included, as a tar stream.
    `on_line` gets each line of output.
    """
    # Attestations next to the manifest would make the image depend on the builder.
    environment = {**engine.cli_environment(), "BUILDX_NO_DEFAULT_ATTESTATIONS": "1"}
    return programs.run(command, env=environment, stdin=context, on_line=on_line)


def build_command(
    environ: Mapping[str, str],
    reference: str,
    *,
    arguments: Mapping[str, str],
    labels: Mapping[str, str],
    secrets: Mapping[str, Path],
    cached: str | None,
    platform: str | None,
    network: str,
) -> list[str]:
    """Return the command that builds an image.

    It contains no proxy values: buildx reads them from its environment.
    `secrets` maps names to files, which stages may mount by name; the files do
    not get into the image. `cached` is an image whose layers may be reused;
    None builds every layer.
    """
    # Only the engine's own builder, `default`, can use a base image that only the engine has.
    words = ["docker", "buildx", "build", "--builder", "default", "--load", "--progress", "plain"]
    words += ["--tag", reference, "--network", network]
    if platform:
        words += ["--platform", platform]
    # The image then records how each layer was made, so a machine with the image rebuilds none.
    words += ["--cache-to", "type=inline"]
    if cached:
        words.append(f"--cache-from={cached}")
    else:
        words.append("--no-cache")

    for name, value in sorted(arguments.items()):
        words += ["--build-arg", f"{name}={value}"]
    for name in sorted([*_PROXIES, *map(str.lower, _PROXIES)]):
        if environ.get(name):
            words += ["--build-arg", name]
    for name, value in sorted(labels.items()):
        words += ["--label", f"{name}={value}"]
    for name, path in sorted(secrets.items()):
        words += ["--secret", f"id={name},src={path}"]
    return [*words, "-"]


def context_files(directory: Path) -> list[str]:
    """Return the paths in a directory that its .dockerignore does not exclude.

    The .dockerignore itself is left out.
    """
    ignore = directory / IGNORE_FILE
    if ignore.exists():
        lines = ignore.read_text(encoding="utf-8").splitlines()
    else:
        lines = []
    patterns = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    paths = exclude_paths(str(directory), patterns, dockerfile="Dockerfile")
    return sorted(path for path in paths if path != IGNORE_FILE)


def compose(
    engine: Engine, project: str, document: str, *words: str, secrets: Mapping[str, str]
) -> None:
    """Run a Compose command on a document from stdin, so that it is on no disk.

    `secrets` are the values of variables in the document; only this command's
    environment has them. Raises OutsideError if the command fails.
    """
    command = ["docker", "compose", "--project-directory", "/", "-p", project, "-f", "-", *words]
    ended = programs.run(
        [*command, "--no-recreate", "--remove-orphans", "--no-build"],
        # No file of the current directory may override the document.
        env={**engine.cli_environment(), "COMPOSE_DISABLE_ENV_FILE": "1", **secrets},
        stdin=document.encode(),
        directory=Path("/"),
        seconds=COMPOSE_SECONDS,
    )
    if ended.code != 0:
        lines = [line.strip() for line in ended.tail if line.strip()]
        where = "\n".join(lines[-LAST_LINES:]) or f"exit code {ended.code}"
        raise OutsideError("Docker Compose could not make the containers", where=where)
