"""The images of the bed: a Debian that was bootstrapped here, and what is built on it."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path

from tests.bed.engine import BedEngine
from tests.bed.places import CACHE, HERE, run
from trainyard import versions

BASE = "trainyard-bed/base:1"
REGISTRY = "trainyard-bed/registry:1"
RAY = "trainyard-bed/ray:1"
HOST = "trainyard-bed/host:1"
PACKAGES = "bash,ca-certificates,procps,python3,python3-venv,wget"
HOST_CA = Path("/etc/ssl/certs/ca-certificates.crt")


def ensure_all(engine: BedEngine) -> None:
    """Build whatever is missing or was changed: base 45 s, Ray 60 s, once."""
    _ensure_base(engine)
    _ensure(engine, REGISTRY, {"docker-registry": Path(shutil.which("docker-registry") or "/usr/bin/docker-registry")})
    _ensure(engine, RAY, {}, arguments={"RAY": versions.RAY})


def ensure_host(engine: BedEngine) -> None:
    """Build the image that plays a Docker host: sshd and an engine of its own, about 60 s, once."""
    _ensure(engine, HOST, {})


def _ensure_base(engine: BedEngine) -> None:
    content = _hash(PACKAGES)
    if _content(engine, BASE) == content:
        return
    CACHE.mkdir(parents=True, exist_ok=True)
    archive = CACHE / f"base-{content}.tar"
    if not archive.exists():
        part = archive.with_suffix(".part.tar")
        # The CAs of this machine: where a proxy stands before the package registries, they are needed in every build.
        trust = f"copy-in {HOST_CA} /etc/ssl/certs/"
        run(
            [
                "mmdebstrap",
                "--variant=minbase",
                f"--include={PACKAGES}",
                f"--customize-hook={trust}",
                "bookworm",
                str(part),
            ]
        )
        part.rename(archive)
    engine.docker("import", "--change", f"LABEL bed={content}", "--change", 'CMD ["/bin/bash"]', str(archive), BASE)


def _ensure(engine: BedEngine, name: str, files: dict[str, Path], *, arguments: dict[str, str] | None = None) -> None:
    source = HERE / "dockerfiles" / name.partition("/")[2].partition(":")[0]
    arguments = arguments or {}
    texts = [path.read_text() for path in sorted(source.iterdir())]
    content = _hash(_content(engine, BASE), *texts, *arguments.values())
    if _content(engine, name) == content:
        return
    with tempfile.TemporaryDirectory() as context:
        shutil.copytree(source, context, dirs_exist_ok=True)
        for target, path in files.items():
            shutil.copy(path, Path(context) / target)
        given = [word for key, value in arguments.items() for word in ("--build-arg", f"{key}={value}")]
        engine.docker(
            *("buildx", "build", "--load", "--network=host", "--label", f"bed={content}", "--tag", name),
            *(*given, context),
            seconds=900,
        )


def _content(engine: BedEngine, name: str) -> str:
    found = engine.docker("image", "inspect", "--format", '{{index .Config.Labels "bed"}}', name, check=False)
    return found.stdout.strip()


def _hash(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:12]
