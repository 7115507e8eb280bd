"""The tiers of the real tests, and their lanes, which tests/together.py runs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

# `make test` runs the first, `make test-NAME` one of the others, `make test-all` all of them. The
# last tests the stand-in cloud of the tests.
CORE, LOCAL = "core", "local"
TIERS = (CORE, LOCAL, "docker", "kubernetes", "microk8s", "ec2", "bed")
# Beside them, a choice across tiers: the life of a cluster on each backend that core does not have.
LIFECYCLE = "lifecycle"
# A test is of the first of these tiers one of whose marks it has; of LOCAL, if it has none. Some
# marks come with fixtures (tests/real/conftest.py).
MARKS = {
    CORE: {"core"},
    "bed": {"bed"},
    "ec2": {"ec2"},
    "microk8s": {"microk8s"},
    "kubernetes": {"kubernetes", "breaking"},
    "docker": {"engine"},
}


def tier_of(marks: Collection[str]) -> str:
    """Return the tier of a test with these marks."""
    return next((tier for tier, of_it in MARKS.items() if not of_it.isdisjoint(marks)), LOCAL)


def mark_of(tier: str) -> str:
    """Return the mark that each test of a tier has, and no other test."""
    return tier if tier == LIFECYCLE else f"tier_{tier}"


@dataclass(frozen=True)
class Lane:
    """Tests of a tier; `processes` processes of pytest deal their modules among themselves
    (tests/dealing.py).

    `only` is an expression of marks, as `pytest -m` has them; `uses` names what is brought first
    (tests/tools.py).
    """

    name: str
    tier: str
    only: str = ""
    processes: int = 1
    uses: tuple[str, ...] = ()

    @property
    def marks(self) -> str:
        """Return what `pytest -m` takes for its tests."""
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
    """Return the lanes of some tiers."""
    return [lane for lane in LANES if lane.tier in tiers]
