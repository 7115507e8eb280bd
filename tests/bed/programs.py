"""The bed's builds of Go modules: Kubernetes, Helm, CoreDNS, the KubeRay operator, pause."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bed import go_toolchain
from tests.bed.places import CACHE, HERE, locked, run

GO = HERE / "go"
KUBERNETES = "v1.34.2"
KUBERAY = "1.5.1"
HELM = "v3.22.0"
COREDNS = "v1.12.4"
OPERATOR = "github.com/ray-project/kuberay/ray-operator"


@dataclass(frozen=True)
class Program:
    """A program: the Go module that pins it (a directory of tests/bed/go), and its package.

    Without a module, `package` is a path with a version, as `go install` takes it. `flags` are the
    linker's.
    """

    name: str
    package: str
    module: str = ""
    flags: Sequence[str] = ()

    @property
    def content(self) -> str:
        """Return a short hash of all inputs of the build."""
        files = (
            sorted(path for path in (GO / self.module).iterdir() if path.is_file())
            if self.module
            else []
        )
        texts = [self.package, *self.flags, *(path.read_text() for path in files)]
        return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:12]

    @property
    def path(self) -> Path:
        return CACHE / "programs" / self.content / self.name


def _set(*packages: str, **values: str) -> tuple[str, ...]:
    return tuple(
        f"-X {package}.{name}={value}" for package in packages for name, value in values.items()
    )


KUBELITE = Program(
    "kubelite",
    ".",
    "kubelite",
    # Without these flags, every client reads the version v0.0.0.
    _set(
        "k8s.io/component-base/version",
        "k8s.io/client-go/pkg/version",
        gitVersion=KUBERNETES,
        gitMajor="1",
        gitMinor=KUBERNETES.split(".")[1],
        gitTreeState="clean",
    ),
)
KUBERAY_OPERATOR = Program("kuberay-operator", OPERATOR, "kuberay")
PAUSE = Program("pause", ".", "pause")
COREDNS_SERVER = Program("coredns", f"github.com/coredns/coredns@{COREDNS}")
HELM_CLIENT = Program(
    "helm",
    f"helm.sh/helm/v3/cmd/helm@{HELM}",
    flags=_set("helm.sh/helm/v3/internal/version", version=HELM),
)
KUBERNETES_PROGRAMS = (KUBELITE, KUBERAY_OPERATOR, PAUSE, COREDNS_SERVER, HELM_CLIENT)


def missing() -> list[str]:
    """Return ["go"] if a program has still to be built and the machine has no Go, else []."""
    return [] if are_built() or go_toolchain.installed() else ["go"]


def are_built() -> bool:
    """Return whether every program is built already."""
    return all(program.path.exists() for program in KUBERNETES_PROGRAMS)


def ensure(program: Program) -> Path:
    """Return the path of a program, and build it if it is missing.

    On 2 cores without a cache, kubelite takes 4 minutes, the others 1 to 2.
    """
    if not program.path.exists():
        build(program.path, lambda part: _build(program, part))
    return program.path


def build(target: Path, make: Callable[[Path], None]) -> None:
    """Let `make` write a file or directory once for all test runs, and rename it to `target`."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with locked("building"):
        if not target.exists():
            part = target.with_suffix(".part")
            make(part)
            part.rename(target)


def commands() -> Path:
    """Return a directory with `kubectl` and `helm`, which belongs first on PATH."""
    kubectl, helm = ensure(KUBELITE), ensure(HELM_CLIENT)
    directory = CACHE / "programs" / f"bin-{KUBELITE.content}-{HELM_CLIENT.content}"
    directory.mkdir(parents=True, exist_ok=True)
    for name, program in (("kubectl", kubectl), ("helm", helm)):
        # A link that is renamed into place: test runs at the same time do the same.
        link = directory / f"{name}.{os.getpid()}"
        link.unlink(missing_ok=True)
        link.symlink_to(program)
        link.rename(directory / name)
    return directory


def kuberay_crds() -> Path:
    """Return a directory with the CRDs of the operator's version that is built."""
    directory = KUBERAY_OPERATOR.path.parent / "crds"
    if not directory.exists():
        build(directory, _copy_crds)
    return directory


def _copy_crds(directory: Path) -> None:
    done = run([go_toolchain.program(), "mod", "download", "-json", OPERATOR], cwd=GO / "kuberay")
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    for path in sorted(
        (Path(json.loads(done.stdout)["Dir"]) / "config" / "crd" / "bases").iterdir()
    ):
        # The files of a module are read-only, and their copies should not be.
        (directory / path.name).write_bytes(path.read_bytes())


def _build(program: Program, part: Path) -> None:
    flags = ["-trimpath", "-ldflags", " ".join(("-s", "-w", *program.flags))]
    # Static, since images FROM scratch have no libc.
    environ = {**os.environ, "CGO_ENABLED": "0"}
    if program.module:
        command = [go_toolchain.program(), "build", *flags, "-o", str(part), program.package]
        run(command, cwd=GO / program.module, env=environ, seconds=3600)
    else:
        environ["GOBIN"] = str(part.parent)
        run([go_toolchain.program(), "install", *flags, program.package], env=environ, seconds=3600)
        (part.parent / program.name).rename(part)
