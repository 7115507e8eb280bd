"""Build an image: by `docker buildx` where there is one, else by the engine's own builder."""

from __future__ import annotations

import csv
import io
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from trainyard.seams import programs
from trainyard.seams.docker_engine import Engine, refusals
from trainyard.seams.programs import Ended

# Builders know these without ARG, and keep them out of history and cache keys ("Predefined ARGs" of the reference).
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "NO_PROXY", "ALL_PROXY")
# What an image is must not depend on the builder's version: no attestations beside the manifest.
_PLAIN_MANIFEST = {"BUILDX_NO_DEFAULT_ATTESTATIONS": "1"}


@dataclass(frozen=True)
class BuildRequest:
    """An image to build. `write` writes the context, with its Dockerfile, as a tar stream.

    `secrets` are files that stages may mount by these names; they do not get into the image. `layers` are references of
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
    layers: tuple[str, ...] = ()


def has_buildx(engine: Engine) -> bool:
    """Say whether `docker buildx` works here."""
    if shutil.which("docker", path=engine.environ.get("PATH")) is None:
        return False
    return programs.run(["docker", "buildx", "version"], env=engine.cli_environment(), seconds=20).code == 0


def buildx(engine: Engine, request: BuildRequest, *, on_line: Callable[[str], None]) -> Ended:
    """Build with BuildKit; the image is named only if all went well. Every line goes to `on_line`."""
    return programs.run(
        _buildx_command(engine, request),
        env={**engine.cli_environment(), **_PLAIN_MANIFEST},
        stdin=request.write,
        on_line=on_line,
    )


def classic(engine: Engine, request: BuildRequest) -> Iterator[Mapping[str, Any]]:
    """Build with the engine's own builder; yield what it reports. Containers of stages are removed by the engine.

    It has no secrets: whoever calls this has none to give.
    """
    with tempfile.TemporaryFile() as context, refusals(f"build {request.reference}"):
        request.write(context)
        context.seek(0)
        answers = engine.api.build(
            fileobj=context,
            custom_context=True,
            tag=request.reference,
            rm=True,
            forcerm=True,
            decode=True,
            nocache=request.no_cache,
            buildargs={**request.arguments, **_proxies(engine.environ)},
            labels=dict(request.labels),
            network_mode=request.network,
            platform=request.platform,
        )
        # Closed on Ctrl-C too: the engine then ends the stage that runs.
        with closing(answers):
            yield from answers


def _buildx_command(engine: Engine, request: BuildRequest) -> list[str]:
    # `default` is the builder inside of the engine itself, which has its images: no other could build on a base that
    # exists only there. Values of proxies stay out of argv: buildx reads them from its environment.
    command = ["docker", "buildx", "build", "--builder", "default", "--load", "--progress", "plain"]
    command += ["--tag", request.reference, "--network", request.network]
    command += ["--platform", request.platform] if request.platform else []
    command += ["--no-cache"] if request.no_cache else []
    # The image says of what each layer was made: whoever has the image need not make them again.
    command += ["--cache-to", "type=inline", *(f"--cache-from={reference}" for reference in request.layers)]
    for name, value in sorted(request.arguments.items()):
        command += ["--build-arg", f"{name}={value}"]
    for name in sorted(_proxies(engine.environ)):
        command += ["--build-arg", name]
    for name, value in sorted(request.labels.items()):
        command += ["--label", f"{name}={value}"]
    for name, path in sorted((request.secrets or {}).items()):
        command += ["--secret", _csv(f"id={name}", f"src={path}")]
    return [*command, "-"]


def _proxies(environ: Mapping[str, str]) -> dict[str, str]:
    names = [name for upper in _PROXIES for name in (upper, upper.lower())]
    return {name: environ[name] for name in names if environ.get(name)}


def _csv(*fields: str) -> str:
    """Return fields as buildx reads its flags: a path with a comma needs quotes."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(fields)
    return line.getvalue()
