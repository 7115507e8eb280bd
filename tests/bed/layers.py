"""The bed's images, unpacked by containerd once for all hosts.

Each set of images takes 20 s of CPU and 1.5 GB. A host that pulls Ray's image asks the registry,
and then finds the layers already unpacked.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from pathlib import Path

from tests.bed import images
from tests.bed.engine import BedEngine
from tests.bed.host import RIGHTS
from tests.bed.places import CACHE, locked

# The path at which hosts mount the layers. dockerfiles/kube-host/images links its content into the
# root directory of containerd.
ON_HOSTS = "/opt/bed/layers"
IMAGES = (*images.ON_A_HOST, images.REGISTRY, images.RAY)


def ensure(engine: BedEngine) -> Path:
    """Return the directory of layers of the current images; make it if missing: about 20 s."""
    ids = engine.docker("image", "inspect", "--format", "{{.Id}}", *IMAGES).stdout
    made = CACHE / "unpacked" / hashlib.sha256(ids.encode()).hexdigest()[:12]
    with locked("layers"):
        if not made.exists():
            part = made.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir(parents=True)
            _unpack(engine, part)
            part.rename(made)
    return made


def _unpack(engine: BedEngine, directory: Path) -> None:
    name = f"trainyard-bed-layers-{os.getpid()}"
    archive = directory / "images.tar"
    engine.docker("save", "--output", str(archive), *IMAGES)
    mounted = ("--volume", f"{directory}:{ON_HOSTS}")
    engine.docker(
        *("run", "--detach", "--rm", "--name", name, *mounted, *RIGHTS, images.KUBE_HOST),
        *("containerd", "--root", ON_HOSTS),
    )

    try:
        give_up = time.monotonic() + 60
        while engine.docker("exec", name, "ctr", "version", check=False).returncode != 0:
            if time.monotonic() > give_up:
                raise RuntimeError(
                    f"containerd did not start\n{engine.docker('logs', name, check=False).stderr}"
                )
            time.sleep(0.2)

        engine.docker(
            "exec",
            name,
            "ctr",
            "--namespace",
            "k8s.io",
            "images",
            "import",
            f"{ON_HOSTS}/{archive.name}",
        )
    finally:
        # A regular stop lets containerd close its databases.
        engine.docker("stop", name, check=False)

    archive.unlink()
