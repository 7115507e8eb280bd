"""No text sends a user to a package index; hints name the packages that pyproject.toml names."""

from __future__ import annotations

import re
import shlex

import pytest
from trainyard_runner.wire import space

from tests.areas import tracked
from tests.unit.test_architecture import ROOT
from trainyard import __version__, versions

# On the index that name is another project's, and Trainyard is not there:
# `pip install 'trainyard[ec2]'`, `uv tool install trainyard-ray`, `trainyard-ray[local]==0.1.0`.
FROM_AN_INDEX = (
    r"""\binstall\s+(?:-\S+\s+)*["'`]?trainyard(?![\w./])""",
    r"\btrainyard(?:-ray)?(?:\[[\w,]*\])?==",
    r"\btrainyard(?:-ray)?\[(?!\S* @ )",
)
# Not importable: Python 3.10 has no tomllib.
PYPROJECT = (ROOT / "pyproject.toml").read_text()
# Asked here: no test of this directory may start a process.
TRACKED = tracked()


def from_an_index(text: str) -> list[str]:
    lines = text.splitlines()
    return [line for line in lines if any(re.search(found, line) for found in FROM_AN_INDEX)]


def extra(name: str) -> str:
    """Return the packages of an extra, as a person types them."""
    listed = re.search(rf"(?m)^{name} = \[(.*)\]$", PYPROJECT)
    assert listed, name
    return " ".join(re.findall(r'"([^">]+)[^"]*"', listed[1]))


def test_no_text_installs_trainyard_from_a_package_index() -> None:
    # Released notes stay as they were; this test names the texts that it looks for.
    texts = {name: ROOT / name for name in TRACKED if name != "CHANGELOG.md"}
    texts.pop("tests/unit/test_no_index.py", None)
    found = {
        name: lines
        for name, path in texts.items()
        if path.is_file() and (lines := from_an_index(path.read_text(errors="replace")))
    }
    assert found == {}


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("pip install trainyard", True),
        ("pip install -U 'trainyard[ec2]'", True),
        ("`uv tool install trainyard-ray`", True),
        ("trainyard-ray[local]==0.1.0", True),
        ("trainyard[local]", True),
        ("pip install '.[ec2]'", False),
        ("pip install './dist/trainyard_ray-0.1.0-py3-none-any.whl[local]'", False),
        ("trainyard-ray[local] @ https://example.com/t.whl", False),
        ("pip uninstall trainyard-ray", False),
        ("trainyard cluster.up", False),
    ],
)
def test_a_text_that_means_a_package_index_is_found(text: str, is_found: bool) -> None:
    assert bool(from_an_index(text)) == is_found


@pytest.mark.parametrize("name", ["local", "aws", "ec2", "tune"])
def test_a_hint_names_the_packages_of_an_extra(name: str) -> None:
    command = shlex.split(versions.installing(name))
    assert command == ["pip", "install", *extra(name).split()]


def test_copies_of_install_commands_match_the_hints() -> None:
    assert f"#   {versions.installing('ec2')}\n" in (ROOT / "clusters/ec2.yaml").read_text()
    assert sorted(space.packages("cmaes")) == extra("tune").split()


def test_the_distribution_has_its_own_name() -> None:
    assert f'\nname = "{versions.DISTRIBUTION}"\nversion = "{__version__}"\n' in PYPROJECT
