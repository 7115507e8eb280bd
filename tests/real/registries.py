"""Registries that a test can break, and tiny images that are pushed quickly."""

from __future__ import annotations

import contextlib
import io
import json
import os
import socket
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.bed.engine import BedEngine
from tests.real.yard import Yard, wait_until
from trainyard import steps
from trainyard.console import progress
from trainyard.images.build import Built
from trainyard.images.push import Pushed, Pushing
from trainyard.registry import container
from trainyard.registry.access import access
from trainyard.registry.certificates import KeyPair
from trainyard.seams.docker.engine import connect
from trainyard.seams.registry.api import digest_of
from trainyard.spec.docker import Registry

IMAGE = "trainyard-bed/registry:1"
DATA = "/var/lib/registry"
USER, PASSWORD = "ray", "open sesame"


@contextmanager
def place_to_work(home: Path, engine: BedEngine, **settings: object) -> Iterator[Yard]:
    """Give a yard whose cluster file has this registry; then remove the registry and its data."""
    yard = Yard(home, environ={**engine.environ(), "REGISTRY_PASSWORD": "first secret"})
    registry = {"image": IMAGE, "address": f"127.0.0.1:{_free_port('127.0.0.1')}", **settings}
    cluster = {"name": yard.cluster, "backend": "compose", "registry": registry}
    yard.write_cluster(json.dumps(cluster).replace("{", "{{").replace("}", "}}"))
    try:
        yield yard
    finally:
        yard.run("registry.down", "--purge")


def address(yard: Yard) -> str:
    return str(yard.json("registry.status", expect=None)["address"])


@dataclass(frozen=True)
class BedRegistry:
    """A registry in a container of the bed's engine; tests look at its disk, and break it."""

    engine: BedEngine
    name: str
    address: str

    def kill(self) -> None:
        """Kill the container, as a power cut would."""
        self.engine.docker("kill", self.name)

    def start(self) -> None:
        """Start the registry, also after `kill`, with what it held."""
        self.engine.docker("start", self.name)
        host, _, port = self.address.rpartition(":")

        def answers() -> bool:
            with (
                contextlib.suppress(OSError),
                socket.create_connection((host, int(port)), timeout=1),
            ):
                # Docker's proxy accepts connections before the registry does.
                return _speaks(self.address)
            return False

        wait_until(answers, seconds=60, what=f"registry {self.address} answers")

    def shell(self, script: str) -> str:
        """Run a script in the registry's data directory; return its output."""
        return self.engine.docker(
            "exec", self.name, "sh", "-c", f"cd {DATA} && {script}"
        ).stdout.strip()

    def tags(self) -> list[str]:
        """Return every tag of every repository on the registry's disk, such as "team/mine:1"."""
        found = self.shell(
            "find . -path '*/_manifests/tags/*/current' -name current -printf '%h\\n'"
        ).split()
        names = (one.partition("/repositories/")[2].partition("/_manifests/tags/") for one in found)
        return sorted(f"{name}:{tag}" for name, _, tag in names)

    def requests(self, text: str) -> int:
        """Return the number of log lines with this text: requests that the registry got so far."""
        said = self.engine.docker("logs", self.name)
        return sum(text in line for line in (said.stdout + said.stderr).splitlines())

    def bytes(self) -> int:
        return int(self.shell("du -sb docker/registry/v2/blobs | cut -f1"))


@contextmanager
def registry(
    engine: BedEngine,
    directory: Path,
    *,
    host: str = "127.0.0.1",
    tls: KeyPair | None = None,
    users: Mapping[str, str] | None = None,
    disk: str | None = None,
    data: Path | None = None,
) -> Iterator[BedRegistry]:
    """Run a registry, by default an open one without TLS, on a new volume.

    `disk` is a size that is soon full (such as "8m"); `data` is a directory with the data of
    another registry.
    """
    settings = {"REGISTRY_STORAGE_DELETE_ENABLED": "true"}
    directory.mkdir(parents=True, exist_ok=True)
    if tls:
        (directory / "server.pem").write_bytes(tls.certificate)
        (directory / "server.key").write_bytes(tls.key)
        settings |= {
            "REGISTRY_HTTP_TLS_CERTIFICATE": "/its/server.pem",
            "REGISTRY_HTTP_TLS_KEY": "/its/server.key",
        }

    if users:
        (directory / "htpasswd").write_bytes(
            b"".join(container.htpasswd_line(*user) for user in users.items())
        )
        settings |= {
            "REGISTRY_AUTH_HTPASSWD_REALM": "bed",
            "REGISTRY_AUTH_HTPASSWD_PATH": "/its/htpasswd",
        }

    port = _free_port(host)
    found = BedRegistry(engine, f"push-test-{port}", f"{host}:{port}")
    options = [f"--env={name}={value}" for name, value in settings.items()]
    options += [
        f"--publish={host}:{port}:5000",
        f"--volume={directory}:/its:ro",
        f"--name={found.name}",
    ]

    options += [f"--tmpfs={DATA}:size={disk}"] if disk else []
    options += [f"--volume={data}:{DATA}"] if data else []
    engine.docker("create", *options, IMAGE)

    try:
        found.start()
        yield found
    finally:
        engine.docker("rm", "-fv", found.name)
        names = engine.docker("images", "--format", "{{.Repository}}:{{.Tag}}").stdout.split()
        ours = [
            name
            for name in names
            if name.startswith(f"{found.address}/") and not name.endswith(":<none>")
        ]
        engine.docker("rmi", "-f", *ours, check=False) if ours else None


@contextmanager
def tiny(engine: BedEngine, directory: Path, *sizes: int) -> Iterator[Built]:
    """Make an image of some layers of random bytes, which cannot be run but is pushed quickly.

    Made without a builder: its cache would keep the layers on the engine after the image is gone.
    """
    directory.mkdir(parents=True, exist_ok=True)
    content = os.urandom(6).hex()
    name = f"tiny-{content}"
    reference = f"trainyard/{name}:{content}"
    _write_archive(directory / "image.tar", reference, [os.urandom(size) for size in sizes])
    engine.docker("load", "-i", str(directory / "image.tar"))
    try:
        image_id = engine.docker("inspect", "-f", "{{.Id}}", reference).stdout.strip()
        yield Built(name, reference, f"trainyard/{name}:ray-0.0.1", content, content, image_id)
    finally:
        engine.docker("rmi", "-f", reference, check=False)


def _write_archive(path: Path, reference: str, contents: Sequence[bytes]) -> None:
    """Write what `docker save` writes: a manifest, a config, one tar file for each layer."""
    layers = [_tar({f"layer{number}": content}) for number, content in enumerate(contents)]
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Cmd": ["none"]},
        "rootfs": {"type": "layers", "diff_ids": [digest_of(layer) for layer in layers]},
    }

    files = {f"{number}.tar": layer for number, layer in enumerate(layers)}
    manifest = [{"Config": "config.json", "RepoTags": [reference], "Layers": list(files)}]
    documents = {
        "config.json": json.dumps(config).encode(),
        "manifest.json": json.dumps(manifest).encode(),
    }
    path.write_bytes(_tar({**files, **documents}))


def _tar(files: Mapping[str, bytes]) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return target.getvalue()


def push(
    engine: BedEngine,
    built: Built,
    to: Registry,
    *,
    environ: Mapping[str, str] | None = None,
    report: Callable[[str], None] = lambda text: None,
) -> Pushed:
    """Push an image as `image.push` does."""
    given = {**os.environ, **engine.environ(), **(environ or {})}
    with connect(given) as there, access(to, given) as way:
        pushing = Pushing(built, way, there, lambda title, text: report(text))
        steps.run(pushing.steps(), progress.for_stream(io.StringIO()))
        return pushing.result()


def _speaks(address: str) -> bool:
    for scheme in ("http", "https"):
        with contextlib.suppress(httpx.HTTPError):
            httpx.get(f"{scheme}://{address}/v2/", verify=False, timeout=2, trust_env=False)
            return True
    return False


def _free_port(host: str) -> int:
    with closing(socket.socket()) as one:
        one.bind((host, 0))
        return int(one.getsockname()[1])
