"""The commands `docker compose` and `docker buildx`: the machine's, or built from Go modules."""

from __future__ import annotations

from pathlib import Path

from tests.bed import go_toolchain
from tests.bed.places import CACHE, HERE, run

# {plugin: (package, variable that holds the program's version, version)}. go/plugins/go.mod pins
# the same versions.
PLUGINS = {
    "docker-compose": (
        "github.com/docker/compose/v2/cmd",
        "github.com/docker/compose/v2/internal.Version",
        "v2.40.3",
    ),
    "docker-buildx": (
        "github.com/docker/buildx/cmd/buildx",
        "github.com/docker/buildx/version.Version",
        "v0.29.1",
    ),
}
INSTALLED = (
    Path("/usr/local/lib/docker/cli-plugins"),
    Path("/usr/local/libexec/docker/cli-plugins"),
    Path("/usr/lib/docker/cli-plugins"),
    Path("/usr/libexec/docker/cli-plugins"),
)


def are_there() -> bool:
    """Say whether both plugins are built or installed on this machine."""
    return all(
        any((folder / name).exists() for folder in (CACHE / "cli-plugins", *INSTALLED))
        for name in PLUGINS
    )


def directory() -> Path:
    """Return a directory with both plugins; build those that the machine lacks.

    A build takes 3 minutes on 2 cores, once.
    """
    plugins = CACHE / "cli-plugins"
    plugins.mkdir(parents=True, exist_ok=True)
    for name in PLUGINS:
        own = plugins / name
        if not own.exists():
            installed = next(
                (folder / name for folder in INSTALLED if (folder / name).exists()), None
            )
            if installed:
                own.symlink_to(installed)
            else:
                _build(name, own)
    return plugins


def _build(name: str, target: Path) -> None:
    package, variable, version = PLUGINS[name]
    part = target.with_suffix(".part")
    flags = f"-s -w -X {variable}={version}"

    command = [
        go_toolchain.program(),
        "build",
        "-trimpath",
        "-ldflags",
        flags,
        "-o",
        str(part),
        package,
    ]

    run(command, cwd=HERE / "go" / "plugins", seconds=3600)
    part.rename(target)
