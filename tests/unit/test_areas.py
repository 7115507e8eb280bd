"""`make test-changed`: which tiers a change is tested by."""

from __future__ import annotations

import pathspec
import pytest

from tests.areas import AREAS, EVERY, tiers_of, tiers_of_all, tracked
from tests.tiers import LIFECYCLE

# Asked here: no test of this directory may start a process.
PATHS = tracked()


def test_every_path_has_a_row() -> None:
    assert "trainyard/main.py" in PATHS
    for path in PATHS:
        tiers_of(path)


def test_every_row_is_of_a_path_that_is_there_and_names_tiers() -> None:
    for patterns, tiers in AREAS:
        assert set(tiers) <= {*EVERY, LIFECYCLE}
        for pattern in patterns.split():
            of_pattern = pathspec.GitIgnoreSpec.from_lines([pattern])
            assert any(map(of_pattern.match_file, PATHS)), pattern


@pytest.mark.parametrize(
    ("path", "tiers"),
    [
        ("docs/jobs.md", ()),
        ("trainyard/backends/ec2/README.md", ()),
        ("trainyard/backends/local/nodes.py", ("local",)),
        ("trainyard/backends/compose/__init__.py", ("docker",)),
        ("trainyard/steps.py", (LIFECYCLE,)),
        ("trainyard/a_new_module.py", (LIFECYCLE,)),
        ("tests/real/test_kuberay_faults.py", ("kubernetes",)),
        ("tests/bed/go/plugins/go.mod", ("docker",)),
        ("tests/bed/go/kubelite/main.go", ("kubernetes", "microk8s")),
    ],
)
def test_the_last_row_that_has_a_path_says_its_tiers(path: str, tiers: tuple[str, ...]) -> None:
    assert tiers_of(path) == tiers


def test_a_change_is_tested_by_the_tiers_of_all_its_paths() -> None:
    assert tiers_of_all([]) == []
    assert tiers_of_all(["trainyard/steps.py", "docs/jobs.md", "compose/cluster.yaml.j2"]) == [
        "docker",
        LIFECYCLE,
    ]


def test_the_lifecycle_tier_is_left_out_if_every_tier_runs() -> None:
    assert tiers_of_all(["a_new_directory/file", "trainyard/steps.py"]) == list(EVERY)
