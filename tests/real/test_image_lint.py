"""Image lint on real images: Ray's, and those for Isaac Lab and Schola on stand-in bases."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import standins
from tests.bed.engine import BedEngine
from tests.real import registries
from tests.real.planted import PLANTED, Defect, image_of, look, plant, without_imports
from tests.real.yard import Yard, wait_until
from trainyard import paths
from trainyard.images import catalog
from trainyard.images.catalog import Image

RAY = "trainyard-bed/ray:1"
BASES = {
    "isaac": ("isaac-ray", standins.ISAAC),
    "isaac-lab": ("isaac-lab", standins.ISAAC_LAB),
    "schola": ("schola", standins.SCHOLA),
}
SLOW = Defect("slow", "ray", 'ENTRYPOINT ["sh", "-c", "sleep 60"]', "entrypoint", "")
CLUSTER = "name: {name}\nbackend: compose\nbuild: {{network: host}}\n"


@pytest.fixture(scope="module")
def bench(engine: BedEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    """Give a place with Schola's package and a game in images/schola; then remove its images."""
    home = tmp_path_factory.mktemp("lint")
    yard = Yard(home, "lint", environ={**engine.environ(), "XDG_CACHE_HOME": str(home / "cache")})
    yard.write_cluster(CLUSTER)
    shutil.copytree(paths.shipped("images") / "schola", home / "images" / "schola")
    standins.schola_contents(home / "images" / "schola")
    yield yard
    broken = engine.docker("images", "-q", "trainyard/broken").stdout.split()
    engine.docker(
        "rmi", "-f", *broken, *(defect.reference for defect in (*PLANTED, SLOW)), check=False
    )


@pytest.fixture(scope="module")
def built(engine: BedEngine, bench: Yard) -> dict[str, Image]:
    """Give images/isaac-ray and images/schola, built on stand-ins for their bases."""
    for name, base in BASES.values():
        bench.run("image.build", name, "--base", standins.ensure(engine, base), seconds=480)
    return {
        key: catalog.find(name, directory=bench.home, base=base)
        for key, (name, base) in BASES.items()
    }


@pytest.mark.parametrize(("image", "base"), BASES.values(), ids=list(BASES))
@pytest.mark.timeout(600)
def test_images_for_isaac_and_schola_pass_on_stand_ins(
    bench: Yard, built: dict[str, Image], image: str, base: str
) -> None:
    found = bench.json("image.lint", image, "--base", base)
    assert found["ok"]
    checks = {check["check"] for check in found["checks"] if not check["skipped"]}

    assert checks >= {
        "entrypoint",
        "user",
        "ray",
        "python",
        "import",
        "imports",
        "runs",
        "files",
        "history",
    }


@pytest.mark.parametrize("defect", PLANTED, ids=[defect.name for defect in PLANTED])
@pytest.mark.timeout(600)
def test_each_planted_defect_is_found_and_nothing_else(
    engine: BedEngine, bench: Yard, request: pytest.FixtureRequest, defect: Defect
) -> None:
    if defect.base in BASES:
        image = request.getfixturevalue("built")[defect.base]
        base = f"{image.repository}:{image.alias}"
        image = image if defect.check == "imports" else without_imports(image)
    else:
        image, base = image_of(defect), RAY if defect.base == "ray" else defect.base
    plant(engine, defect, base)
    report = look(engine, defect.reference, image, cache=bench.home / "cache")
    assert [finding.check for finding in report.failed] == [defect.check], report.failed
    assert report.failed[0].detail.startswith(defect.says) or defect.says in report.failed[0].detail


def test_nothing_is_pushed_of_an_image_with_a_defect(
    engine: BedEngine, bench: Yard, tmp_path: Path
) -> None:
    broken = bench.home / "images" / "broken"
    broken.mkdir()
    (broken / "Dockerfile").write_text(
        "ARG BASE\nFROM ${BASE}\nENV WANDB_API_KEY=0123456789abcdef\n"
    )
    (broken / "image.yaml").write_text(f"base: {RAY}\nuser: root\n")

    with registries.registry(engine, tmp_path) as registry:
        settings = f"registry={{address: '{registry.address}', insecure: true}}"
        done = bench.run("image.push", "broken", "--set", settings, expect=5)
        assert registry.tags() == []

    assert done.stderr.splitlines()[-4:] == [
        "  - user: runs as ray (uid 1000), and image.yaml says root",
        "    -> Let the Dockerfile end with: USER root",
        "  - history: shows secrets: the variable WANDB_API_KEY",
        "    -> Change the secret, then pass it as a build secret: RUN --mount=type=secret,id=...",
    ]

    assert "Push" not in done.stdout + done.stderr


def test_a_lint_leaves_no_container_even_if_it_is_interrupted(
    engine: BedEngine, bench: Yard
) -> None:
    def containers(*flags: str) -> str:
        return engine.docker("ps", "-q", *flags, "--filter", f"ancestor={SLOW.reference}").stdout

    plant(engine, SLOW, RAY)
    process = bench.start("image.lint", SLOW.reference)
    wait_until(lambda: bool(containers()), seconds=60, what="the image is being asked")
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert containers("-a") == ""
