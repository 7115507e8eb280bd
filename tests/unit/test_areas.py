"""`make test-changed`: which tiers a change is tested by."""

from __future__ import annotations

import os
from pathlib import Path

import pathspec
import pytest

from tests.areas import AREAS, EVERY, ROOT, tiers_of, tiers_of_all
from tests.tiers import LIFECYCLE

# Git keeps its own files there: a directory, or a file in a worktree.
IGNORED = [".git", *(ROOT / ".gitignore").read_text().splitlines()]


def tracked() -> list[str]:
    """Return the files of this checkout that git does not ignore; no process is started for it."""
    ignored = pathspec.GitIgnoreSpec.from_lines(IGNORED)
    found = []
    for directory, names, files in os.walk(ROOT):
        here = Path(directory).relative_to(ROOT)
        names[:] = [name for name in names if not ignored.match_file(f"{here / name}/")]
        found += [str(here / file) for file in files if not ignored.match_file(str(here / file))]
    return found


def test_every_path_has_a_row() -> None:
    paths = tracked()
    assert "trainyard/main.py" in paths
    assert ".venv/bin/python" not in paths
    for path in paths:
        tiers_of(path)


def test_every_row_is_of_a_path_that_is_there_and_names_tiers() -> None:
    paths = tracked()
    for patterns, tiers in AREAS:
        assert set(tiers) <= {*EVERY, LIFECYCLE}
        for pattern in patterns.split():
            of_pattern = pathspec.GitIgnoreSpec.from_lines([pattern])
            assert any(map(of_pattern.match_file, paths)), pattern


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


def test_where_every_tier_runs_no_life_of_a_cluster_runs_twice() -> None:
    assert tiers_of_all(["a_new_directory/file", "trainyard/steps.py"]) == list(EVERY)
