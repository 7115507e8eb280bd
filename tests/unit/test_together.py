"""`make test`: each test is of one group, and what this machine cannot run is left out by name."""

from __future__ import annotations

import dataclasses
from itertools import product
from pathlib import Path

import pytest

from tests import together
from tests.bed.places import may_mount
from tests.together import BUSY, LOCAL, MARKS, PATIENT, chosen, left_out, summary
from tests.tools import FOR_THE_ENGINE, ON_THIS_MACHINE, Machine, announcement, obstacle, packages

ROOT = Path(__file__).parents[2]
READY = Machine(is_root=True, has_apt=True, runs_engines=True, has_go=True, is_built=True)
BARE = dataclasses.replace(READY, has_go=False, is_built=False, missing=frozenset((*ON_THIS_MACHINE, *FOR_THE_ENGINE)))
USER = dataclasses.replace(BARE, is_root=False)
CONTAINER = dataclasses.replace(BARE, runs_engines=False)
WITHOUT_APT = dataclasses.replace(BARE, has_apt=False)


def test_every_test_is_of_one_group() -> None:
    for marked in product((False, True), repeat=len(MARKS)):
        marks = dict(zip(MARKS, marked, strict=True))
        # What pytest takes is Python, too.
        groups = [group for group in (*BUSY, *PATIENT) if eval(chosen(group), marks)]
        assert groups == [next((mark for mark in MARKS if marks[mark]), LOCAL)]


@pytest.mark.parametrize(
    ("machine", "reason"),
    [
        (READY, ""),
        (BARE, ""),
        (USER, "they need root, or sudo without a password"),
        (CONTAINER, "they start a Docker engine, and this container may not (no CAP_SYS_ADMIN or no CAP_NET_ADMIN)"),
        (
            WITHOUT_APT,
            "they need docker-registry, dockerd, ip, mmdebstrap, rsync, unpigz, and this system has no apt-get",
        ),
    ],
)
def test_groups_that_use_the_engine_are_left_out_where_it_cannot_run(machine: Machine, reason: str) -> None:
    assert obstacle(machine) == reason
    assert left_out(machine) == ([group for group in (*BUSY, *PATIENT) if group != LOCAL] if reason else [])


def test_a_bare_machine_gets_everything_and_says_so_beforehand() -> None:
    assert set(packages(BARE)) > {"chromium", "docker.io", "debian-archive-keyring"}
    assert [line.split(" ")[0] for line in announcement(BARE)] == ["installs", "downloads", "builds", "the"]


def test_a_machine_that_has_everything_has_nothing_announced() -> None:
    assert (packages(READY), announcement(READY)) == ([], [])


def test_a_container_gets_what_the_other_tests_use_and_no_engine() -> None:
    assert packages(CONTAINER) == ["chromium", "mesa-vulkan-drivers", "openssh-client", "vulkan-tools"]


def test_without_rights_nothing_is_installed() -> None:
    assert packages(USER) == []
    assert announcement(USER) == [
        "installs no Docker engine: the tests that use one are left out, they need root, or sudo without a password"
    ]


def test_the_last_line_names_what_failed_and_what_was_left_out() -> None:
    assert summary({"local": 0, "ec2": 1}, READY) == "failed: ec2; passed: local"
    assert summary({"local": 0}, USER) == (
        "passed: local; left out: ec2, docker, kubernetes, breaking, waiting, microk8s, since they need root, or sudo "
        "without a password; left out: what uses chromium, ssh, vulkaninfo, which this machine lacks"
    )


def test_where_all_tests_must_run_leaving_some_out_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINYARD_TESTS", "all")
    monkeypatch.setattr(together, "look", lambda: USER)
    with pytest.raises(SystemExit) as left:
        together.main([])
    assert left.value.code == (
        "error: TRAINYARD_TESTS=all, but these cannot run: ec2, docker, kubernetes, breaking, waiting, microk8s, "
        "since they need root, or sudo without a password"
    )


def test_ci_runs_what_people_run_and_leaves_nothing_out() -> None:
    commands = [line for line in (ROOT / ".ci/run").read_text().splitlines() if line and line[0] != "#"]
    assert commands == ["set -euo pipefail", 'cd "$(dirname "$0")/.."', "TRAINYARD_TESTS=all make test"]


def test_a_process_that_may_not_mount_may_run_no_engine(tmp_path: Path) -> None:
    status = tmp_path / "status"
    status.write_text("Name:\tbash\nCapEff:\t000001ffffffffff\n")
    assert may_mount(status)
    # An ordinary container of Docker.
    status.write_text("Name:\tbash\nCapEff:\t00000000a80425fb\n")
    assert not may_mount(status)
    assert not may_mount(tmp_path / "macOS")
