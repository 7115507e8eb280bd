"""The images of the bed: a Debian that mmdebstrap builds here, and images that derive from it."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from tests.bed import programs
from tests.bed.engine import BedEngine
from tests.bed.places import CACHE, HERE, locked, run
from trainyard import versions

BASE = "trainyard-bed/base:1"
REGISTRY = "trainyard-bed/registry:1"
RAY = "trainyard-bed/ray:1"
HOST = "trainyard-bed/host:1"
KUBE_HOST = "trainyard-bed/kube-host:2"
MICROK8S_HOST = "trainyard-bed/microk8s-host:3"
RAY_GPU = "trainyard-bed/ray-gpu:1"
RAY_ROOT = "trainyard-bed/ray-root:1"
RAY_AWS = "trainyard-bed/ray-aws:1"
EC2_INSTANCE = "trainyard-bed/ec2-instance:1"
TORCH = "trainyard-bed/torch:1"
ADO = "trainyard-bed/ado:1"
SCHOLA_BASE = "trainyard-bed/schola-base:1"
# {image: its one program}. Hosts get these images from layers.py, so that a cluster need not pull
# its own.
ON_A_HOST = {
    "trainyard-bed/pause:1": programs.PAUSE,
    "trainyard-bed/coredns:1": programs.COREDNS_SERVER,
    f"trainyard-bed/kuberay-operator:v{programs.KUBERAY}": programs.KUBERAY_OPERATOR,
}
PACKAGES = "bash,ca-certificates,procps,python3,python3-venv,wget"
# The directory of Trainyard's own image for users, which is not an image of the bed.
TORCH_IMAGE = HERE.parents[1] / "images" / "torch"
HOST_CA = Path("/etc/ssl/certs/ca-certificates.crt")


def ensure_all(engine: BedEngine) -> None:
    """Build the images that are missing or out of date: base 45 s, Ray 60 s, once."""
    _ensure_debian(engine, BASE, PACKAGES)
    _ensure(
        engine,
        REGISTRY,
        {"docker-registry": Path(shutil.which("docker-registry") or "/usr/bin/docker-registry")},
    )
    _ensure(engine, RAY, {}, arguments={"RAY": versions.RAY})


def ensure_host(engine: BedEngine) -> None:
    """Build the image that plays a Docker host, with sshd and an engine: about 60 s, once."""
    with locked("images"):
        _ensure(engine, HOST, {})


def ensure_host_image(engine: BedEngine, name: str) -> None:
    """Build the image of a user's machine: MICROK8S_HOST with snapd, or KUBE_HOST, a bare one."""
    with locked("images"):
        _ensure_kube_host(engine)
        if name == MICROK8S_HOST:
            _ensure_microk8s_host(engine)


def _ensure_kube_host(engine: BedEngine) -> None:
    for name, program in ON_A_HOST.items():
        _ensure(
            engine,
            name,
            {"program": programs.ensure(program)},
            source="scratch-program",
            made_of=[program.content],
        )
    kubelite = programs.ensure(programs.KUBELITE)
    _ensure(engine, KUBE_HOST, {"kubelite": kubelite}, made_of=[programs.KUBELITE.content])


def _ensure_microk8s_host(engine: BedEngine) -> None:
    with tempfile.TemporaryDirectory() as directory:
        dns = Path(directory) / "dns.yaml"
        dns.write_text(
            (HERE / "manifests/dns.yaml").read_text().replace("10.96.0.10", "10.152.183.10")
        )
        _ensure(
            engine,
            MICROK8S_HOST,
            {"manifests/dns.yaml": dns},
            made_of=[_content(engine, KUBE_HOST), dns.read_text()],
        )


def ensure_ray_root(engine: BedEngine) -> None:
    """Build Ray's image with root as its user, so that another image can be built on it."""
    with locked("images"):
        _ensure(engine, RAY_ROOT, {}, made_of=[_content(engine, RAY)])


def ensure_ray_gpu(engine: BedEngine) -> None:
    """Build the training image that pretends to have GPUs."""
    with locked("images"):
        _ensure(engine, RAY_GPU, {}, made_of=[_content(engine, RAY)])


def ensure_ec2(engine: BedEngine) -> None:
    """Build the training image for EC2, and on it the image of an instance: 60 s, once."""
    with locked("images"):
        _ensure(
            engine,
            RAY_AWS,
            {},
            arguments={"BOTO3": metadata.version("boto3")},
            made_of=[_content(engine, RAY)],
        )

        gpus = HERE / "dockerfiles/ray-gpu/nvidia-smi"
        _ensure(
            engine,
            EC2_INSTANCE,
            {gpus.name: gpus},
            made_of=[_content(engine, RAY_AWS), gpus.read_text()],
        )


def ensure_torch(engine: BedEngine) -> None:
    """Build images/torch on the bed's base, with PyTorch from pip's index.

    It takes 6.9 GB, and ten minutes once.
    """
    arguments = {"BASE": BASE, "RAY_VERSION": versions.RAY}
    with locked("images"):
        _ensure(engine, TORCH, {}, arguments=arguments, source=str(TORCH_IMAGE), seconds=3600)


def ensure_ado(engine: BedEngine) -> None:
    """Build an image that has ado, for nodes that reach no package index: a minute, once."""
    with locked("images"):
        _ensure(engine, ADO, {}, made_of=[_content(engine, RAY)])


def ensure_schola_base(engine: BedEngine) -> None:
    """Build a base for images/schola that has Ray and torch: seconds more than `ensure_torch`."""
    ensure_torch(engine)
    with locked("images"):
        _ensure(engine, SCHOLA_BASE, {}, made_of=[_content(engine, TORCH)])


def ensure_debian(engine: BedEngine, name: str, packages: Sequence[str]) -> None:
    """Bootstrap a Debian with only these packages and their dependencies: 45 s, once."""
    with locked("images"):
        _ensure_debian(engine, name, ",".join(packages))


def has_base() -> bool:
    """Say whether the bed's Debian was bootstrapped on this machine before."""
    return _archive(PACKAGES).exists()


def _archive(packages: str) -> Path:
    return CACHE / f"base-{_hash(packages)}.tar"


def _ensure_debian(engine: BedEngine, name: str, packages: str) -> None:
    content = _hash(packages)
    if _content(engine, name) == content:
        return

    CACHE.mkdir(parents=True, exist_ok=True)
    archive = _archive(packages)
    if not archive.exists():
        part = archive.with_suffix(".part.tar")
        # This machine's CAs: every build needs them where a proxy intercepts the connections to
        # package registries.
        trust = f"copy-in {HOST_CA} /etc/ssl/certs/"
        run(
            [
                "mmdebstrap",
                "--variant=minbase",
                f"--include={packages}",
                f"--customize-hook={trust}",
                "bookworm",
                str(part),
            ]
        )

        part.rename(archive)

    engine.docker(
        "import",
        "--change",
        f"LABEL bed={content}",
        "--change",
        'CMD ["/bin/bash"]',
        str(archive),
        name,
    )


def _ensure(
    engine: BedEngine,
    name: str,
    files: dict[str, Path],
    *,
    arguments: dict[str, str] | None = None,
    source: str = "",
    made_of: Sequence[str] = (),
    seconds: float = 900,
) -> None:
    """Build an image from dockerfiles/`source` unless an up-to-date one exists.

    `source` is by default the image's own name. `files` are copied next to the Dockerfile. The
    image is out of date when the base, a file, an argument or a text of `made_of` has changed.
    """
    directory = HERE / "dockerfiles" / (source or name.partition("/")[2].partition(":")[0])
    arguments = arguments or {}
    texts = [
        path.read_text()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.suffix != ".pyc"
    ]

    content = _hash(_content(engine, BASE), *texts, *arguments.values(), *made_of)
    if _content(engine, name) == content:
        return

    with tempfile.TemporaryDirectory() as context:
        shutil.copytree(directory, context, dirs_exist_ok=True)
        for target, path in files.items():
            shutil.copy(path, Path(context) / target)

        given = [
            word for key, value in arguments.items() for word in ("--build-arg", f"{key}={value}")
        ]

        engine.docker(
            *(
                "buildx",
                "build",
                "--load",
                "--network=host",
                "--label",
                f"bed={content}",
                "--tag",
                name,
            ),
            *(*given, context),
            seconds=seconds,
        )


def _content(engine: BedEngine, name: str) -> str:
    found = engine.docker(
        "image", "inspect", "--format", '{{index .Config.Labels "bed"}}', name, check=False
    )
    return found.stdout.strip()


def _hash(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:12]
