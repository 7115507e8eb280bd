"""Images with one defect each: how a healthy image gets it, and all that lint must say of it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.bed.engine import BedEngine
from trainyard.images import lint
from trainyard.images.catalog import Image
from trainyard.images.lint import LintReport
from trainyard.seams.docker import engine as docker_engine
from trainyard.spec.image import ImageFile

PACKAGES = "/opt/ray/lib/python3.11/site-packages"


@dataclass(frozen=True)
class Defect:
    """One defect of an image, planted by `dockerfile` with `files` as the build's context.

    `base` is "ray", "isaac", "schola", "base" or "scratch"; `file` is the section `lint` of
    image.yaml. Lint must report `check` with the words `says`.
    """

    name: str
    base: str
    dockerfile: str
    check: str
    says: str
    file: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def reference(self) -> str:
        return f"trainyard-lint/{self.name}:1"


PLANTED = (
    Defect(
        "other-ray",
        "ray",
        f"USER root\nWORKDIR {PACKAGES}\nRUN sed -i 's/2.60.0/2.59.0/' ray/_version.py "
        "ray-2.60.0.dist-info/METADATA\n"
        "USER ray\nWORKDIR /home/ray",
        "ray",
        "has Ray 2.59.0, and clusters run 2.60.0",
    ),
    Defect(
        "swallows",
        "ray",
        'ENTRYPOINT ["python", "-c", "print(\'training\')"]',
        "entrypoint",
        "ENTRYPOINT python -c print('training') swallows the command that it is given",
    ),
    Defect(
        "no-shell",
        "scratch",
        "COPY file /file",
        "bash",
        "no shell can run: ",
        files={"file": "x"},
    ),
    Defect(
        "other-machine",
        "scratch",
        "COPY --chmod=755 sh /bin/sh",
        "platform",
        "is for linux/amd64, which this engine cannot run: exec format error",
        files={"sh": "no program\n"},
    ),
    Defect(
        "no-optuna",
        "isaac",
        "RUN python -m pip uninstall -q -y optuna",
        "imports",
        "optuna fails as root (uid 0): ModuleNotFoundError: No module named 'optuna'",
    ),
    Defect(
        "other-schola",
        "schola",
        "USER root\nRUN sed -i '/^NEW_NAMES/s/\"sgd_/\"no_/' /opt/code/schola_train.py\nUSER 1000",
        "runs",
        "got an unexpected keyword argument 'sgd_minibatch_size'",
    ),
)


def plant(engine: BedEngine, defect: Defect, base: str) -> None:
    """Build the image with the defect."""
    with tempfile.TemporaryDirectory() as context:
        for name, text in defect.files.items():
            Path(context, name).write_text(text)
        Path(context, "Dockerfile").write_text(f"FROM {base}\n{defect.dockerfile}\n")
        engine.docker("buildx", "build", "--load", "--tag", defect.reference, context)


def look(engine: BedEngine, reference: str, image: Image | None, *, cache: Path) -> LintReport:
    """Lint an image of the bed's engine."""
    with _engine(engine, cache) as connected:
        return lint.check(image, reference, connected)


def image_of(defect: Defect) -> Image:
    """Return an image whose image.yaml has the defect's section `lint`."""
    file = ImageFile.model_validate({"base": "x", "user": "any", "lint": dict(defect.file)})
    return Image(defect.name, Path(), file, "x")


def without_imports(image: Image) -> Image:
    """Return the image without modules to import: those of isaac-ray alone take 5 s to import."""
    section = image.file.lint.model_copy(update={"imports": ()})
    return replace(image, file=image.file.model_copy(update={"lint": section}))


@contextmanager
def _engine(engine: BedEngine, cache: Path) -> Iterator[docker_engine.Engine]:
    environ = {**os.environ, **engine.environ(), "XDG_CACHE_HOME": str(cache)}
    with docker_engine.connect(environ) as connected:
        yield connected
