"""`make test` and its tiers: each test is of one; tests that cannot run here are named."""

from __future__ import annotations

import dataclasses
from itertools import combinations
from math import inf
from pathlib import Path

import pytest

from tests import history, together
from tests.bed.places import may_mount
from tests.dealing import Ran
from tests.tiers import CORE, LANES, LIFECYCLE, LOCAL, MARKS, TIERS, Lane, lanes, mark_of, tier_of
from tests.together import left_out, summary
from tests.tools import (
    FOR_THE_ENGINE,
    ON_THIS_MACHINE,
    Machine,
    Supplies,
    announcement,
    obstacle,
    packages,
)

ROOT = Path(__file__).parents[2]
READY = Machine(
    is_root=True, has_apt=True, runs_engines=True, has_go=True, has_images=True, has_kubernetes=True
)
BARE = dataclasses.replace(
    READY,
    has_go=False,
    has_images=False,
    has_kubernetes=False,
    missing=frozenset((*ON_THIS_MACHINE, *FOR_THE_ENGINE)),
)
USER = dataclasses.replace(BARE, is_root=False)
CONTAINER = dataclasses.replace(BARE, runs_engines=False)
WITHOUT_APT = dataclasses.replace(BARE, has_apt=False)
OTHER_MARKS = {"browser", "waiting"}


def test_every_test_is_of_one_tier_and_of_one_lane_of_it() -> None:
    names = sorted(OTHER_MARKS.union(*MARKS.values()))
    for count in range(len(names) + 1):
        for marks in combinations(names, count):
            tier = tier_of(marks)
            if {"core", "browser", "engine"} <= set(marks):
                continue  # no test has both a browser and containers

            has = {mark: mark in marks for mark in names} | {
                mark_of(one): one == tier for one in TIERS
            }
            # pytest's mark expressions are Python, too.
            found = [
                lane.tier for lane in LANES if lane.tier != LIFECYCLE and eval(lane.marks, has)
            ]
            assert found == [tier], marks


@pytest.mark.parametrize(
    ("marks", "tier"),
    [
        (set(), LOCAL),
        ({"waiting"}, LOCAL),
        ({"core", "engine", "kubernetes"}, CORE),
        ({"engine"}, "docker"),
        ({"engine", "kubernetes"}, "kubernetes"),
        ({"breaking"}, "kubernetes"),
        ({"microk8s", "engine"}, "microk8s"),
        ({"ec2", "engine"}, "ec2"),
    ],
)
def test_the_tier_of_a_test_is_that_of_the_most_that_it_needs(marks: set[str], tier: str) -> None:
    assert tier_of(marks) == tier


@pytest.mark.parametrize(
    ("machine", "reason"),
    [
        (READY, ""),
        (BARE, ""),
        (USER, "they need root, or sudo without a password"),
        (
            CONTAINER,
            (
                "they start a Docker engine, and this container may not (no CAP_SYS_ADMIN or no "
                "CAP_NET_ADMIN)"
            ),
        ),
        (
            WITHOUT_APT,
            (
                "they need docker-registry, dockerd, ip, mmdebstrap, rsync, unpigz, and this system "
                "has no apt-get"
            ),
        ),
    ],
)
def test_groups_that_use_the_engine_are_left_out_where_it_cannot_run(
    machine: Machine, reason: str
) -> None:
    assert obstacle(machine) == reason
    assert left_out([CORE], machine) == (["core-containers"] if reason else [])
    assert left_out([LOCAL], machine) == []
    assert left_out(["ec2", "microk8s"], machine) == (["ec2", "microk8s"] if reason else [])


def uses(*tiers: str) -> set[str]:
    return {use for lane in lanes(tiers) for use in lane.uses}


def test_a_bare_machine_gets_what_a_tier_uses_and_says_so_beforehand() -> None:
    assert set(packages(BARE)) > {"chromium", "docker.io", "debian-archive-keyring"}
    said = [line.split(", into")[0] for line in announcement(BARE, uses(CORE))]
    assert said[0].startswith("installs Debian packages: chromium, ")
    assert said[1].startswith("downloads Go ")
    assert said[2:] == ["builds Docker's plugins, a Debian and Ray's image"]
    more = [line.split(", into")[0] for line in announcement(BARE, uses("kubernetes"))]
    assert more == [*said, "builds Kubernetes, KubeRay and Helm from their sources"]
    assert announcement(BARE, uses(LOCAL)) == announcement(BARE, {"packages"})


def test_a_machine_that_has_everything_has_nothing_announced() -> None:
    assert (packages(READY), announcement(READY, uses(*TIERS))) == ([], [])


def test_a_container_gets_what_the_other_tests_use_and_no_engine() -> None:
    assert packages(CONTAINER) == [
        "chromium",
        "mesa-vulkan-drivers",
        "openssh-client",
        "vulkan-tools",
    ]


def test_without_rights_nothing_is_installed() -> None:
    assert packages(USER) == []
    assert announcement(USER, uses(CORE)) == [
        (
            "installs no Docker engine: the tests that use one are left out, they need root, or sudo "
            "without a password"
        )
    ]


def test_the_last_line_names_failed_and_left_out_tiers() -> None:
    assert summary({"local": 0, "ec2": 1}, [LOCAL, "ec2"], READY) == "failed: ec2; passed: local"
    assert summary({"core": 0, "core-browser": 0}, [CORE], USER) == (
        "passed: core, core-browser; left out: core-containers, since they need root, or sudo "
        "without a password; "
        "left out: what uses chromium, ssh, vulkaninfo, which this machine lacks"
    )


def test_a_module_that_ran_twice_too_often_lately_is_reported() -> None:
    calm = {"seconds": {"core: a": 1.0}, "twice": []}
    other = {"seconds": {"local: a": 1.0}, "twice": ["local: a"]}
    flaky = {"seconds": {"core: a": 1.0}, "twice": ["core: a"]}
    assert history.too_often([flaky, calm, other, other, flaky]) == []
    assert history.too_often([flaky, calm, flaky, flaky]) == ["core: a"]
    assert history.too_often([flaky, flaky, flaky, calm]) == []
    assert history.too_often([flaky, flaky, *[calm] * 8, flaky]) == []


def test_modules_are_listed_by_their_time() -> None:
    ran = {"core: a": Ran(3, 1.25), "core: b": Ran(12, 101.0, failed=True)}
    assert history.table(ran, {"core: b"}) == [
        "  101.0 s   12 tests  core: b  ran twice",
        "    1.2 s    3 tests  core: a",
    ]


def test_tests_that_cannot_run_are_an_error_if_all_must_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TRAINYARD_TESTS", "all")
    monkeypatch.setattr(together, "look", lambda: USER)
    with pytest.raises(SystemExit) as left:
        together.main([CORE, "ec2"])
    assert left.value.code == (
        "error: TRAINYARD_TESTS=all, but these cannot run: core-containers, ec2, since they need "
        "root, or sudo "
        "without a password"
    )


def test_ci_runs_what_people_run_and_leaves_nothing_out() -> None:
    commands = [
        line for line in (ROOT / ".ci/run").read_text().splitlines() if line and line[0] != "#"
    ]
    assert commands == [
        "set -euo pipefail",
        'cd "$(dirname "$0")/.."',
        "began=$(date +%s)",
        "export TRAINYARD_TESTS=all",
        "make test",
        "left=$((began + 84 * 60 - $(date +%s)))",
        'timeout --preserve-status --kill-after=240 "$left" \\',
        '  .venv/bin/python -m tests.together --changed --until "$((began + 50 * 60))"',
    ]


def test_a_process_that_may_not_mount_may_run_no_engine(tmp_path: Path) -> None:
    status = tmp_path / "status"
    status.write_text("Name:\tbash\nCapEff:\t000001ffffffffff\n")
    assert may_mount(status)
    # An ordinary container of Docker.
    status.write_text("Name:\tbash\nCapEff:\t00000000a80425fb\n")
    assert not may_mount(status)
    assert not may_mount(tmp_path / "macOS")


class Lanes(together.Together):
    """Lanes whose modules pass when they run once more; `ran` says which did."""

    ran: tuple[str, ...] = ()

    def _pytest(self, lane: Lane, name: str, deal: Path, *words: str) -> int:
        self.ran = words
        return 0


@pytest.mark.parametrize(
    ("code", "seconds", "again"),
    [
        (together.TESTS_FAILED, 170.0, ("tests/real/test_a.py",)),
        # Its time would be lost a second time.
        (together.TESTS_FAILED, 1900.0, ()),
        # pytest itself had an error, or was interrupted.
        (3, 170.0, ()),
        (2, 170.0, ()),
    ],
)
def test_modules_that_failed_quickly_run_once_more_and_that_decides(
    code: int, seconds: float, again: tuple[str, ...], tmp_path: Path
) -> None:
    lane = lanes([CORE])[0]
    lanes_of = Lanes([], tmp_path, Supplies(READY), until=inf)
    failed = {"tests/real/test_a.py": Ran(3, seconds, failed=True)}
    processes = [together.Process(0), together.Process(code, failed)]
    assert lanes_of.once_more(lane, processes) == together.Ended(0 if again else code, again)
    assert lanes_of.ran == again


def test_modules_of_a_lane_that_was_cut_short_do_not_run_again(tmp_path: Path) -> None:
    lanes_of = Lanes([], tmp_path, Supplies(READY), until=inf)
    lanes_of.end(15, None)
    failed = {"tests/real/test_a.py": Ran(3, 1.0, failed=True)}
    ended = lanes_of.once_more(lanes([CORE])[0], [together.Process(1, failed, is_cut=True)])
    assert (ended, lanes_of.ran) == (together.Ended(1, is_cut=True), ())
