"""The tiers of the real tests, and their lanes, which tests/together.py runs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

# `make test` runs core, `make test-NAME` another tier, `make test-all` all of them. `bed` tests the
# tests' stand-in for AWS.
CORE, LOCAL = "core", "local"
TIERS = (CORE, LOCAL, "docker", "kubernetes", "microk8s", "ec2", "bed")
# A choice across tiers: the life of a cluster on each backend that core does not have.
LIFECYCLE = "lifecycle"
# TIER: its marks. A test is of the first tier that has one of its marks; of LOCAL, if none has.
# Some marks come with fixtures (tests/real/conftest.py).
MARKS = {
    CORE: {"core"},
    "bed": {"bed"},
    "ec2": {"ec2"},
    "microk8s": {"microk8s"},
    "kubernetes": {"kubernetes", "breaking"},
    "docker": {"engine"},
}


def tier_of(marks: Collection[str]) -> str:
    """Return the tier of a test that has these marks."""
    return next((tier for tier, of_it in MARKS.items() if not of_it.isdisjoint(marks)), LOCAL)


def mark_of(tier: str) -> str:
    """Return the mark that all tests of a tier have, and no other test."""
    return tier if tier == LIFECYCLE else f"tier_{tier}"


@dataclass(frozen=True)
class Lane:
    """Tests of a tier; `processes` processes of pytest share the modules (tests/dealing.py).

    `only` is an expression of marks, as `pytest -m` takes them; `uses` names what has to be
    installed or built first (SUPPLIES in tests/tools.py).
    """

    name: str
    tier: str
    only: str = ""
    processes: int = 1
    uses: tuple[str, ...] = ()

    @property
    def marks(self) -> str:
        """Return the expression of marks with which `pytest -m` selects the lane's tests."""
        return f"{mark_of(self.tier)} and {self.only}" if self.only else mark_of(self.tier)

    @property
    def has_engine(self) -> bool:
        """Say whether its tests use the Docker engine of the bed."""
        return "images" in self.uses


CONTAINERS = ("packages", "images")
HOSTS = (*CONTAINERS, "kubernetes")
LANES = (
    Lane("core", CORE, "not engine and not browser", processes=2),
    Lane("core-browser", CORE, "browser", uses=("packages",)),
    Lane("core-containers", CORE, "engine", uses=CONTAINERS),
    Lane("local", LOCAL, "not waiting", processes=2, uses=("packages", "mlflow")),
    Lane("local-waiting", LOCAL, "waiting"),
    Lane("ec2", "ec2", processes=2, uses=(*CONTAINERS, "ec2")),
    Lane("bed", "bed", uses=(*CONTAINERS, "ec2")),
    Lane("docker", "docker", processes=2, uses=CONTAINERS),
    Lane("kubernetes", "kubernetes", "not breaking", uses=HOSTS),
    Lane("kubernetes-breaking", "kubernetes", "breaking", uses=HOSTS),
    Lane("lifecycle", LIFECYCLE, processes=2, uses=(*HOSTS, "microk8s", "ec2")),
    Lane("microk8s", "microk8s", processes=2, uses=(*HOSTS, "microk8s")),
)


def lanes(tiers: Collection[str]) -> list[Lane]:
    """Return the lanes that belong to some tiers."""
    return [lane for lane in LANES if lane.tier in tiers]
