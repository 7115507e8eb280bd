"""A new project: what is written, what is left as it is, and what is said of it."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import trainyard_runner
import yaml

from tests.unit.fake_programs import FakePrograms
from tests.unit.test_architecture import ROOT
from tests.unit.test_installed import write_installation
from trainyard import paths
from trainyard.console.progress import for_stream
from trainyard.dispatch import package
from trainyard.operations import new_project
from trainyard.seams import git, installed

Make = Callable[[Path], new_project.Made]
WHEEL = "./wheels/trainyard_ray-0.1.0-py3-none-any.whl[local]"
WRITTEN = (
    ".github/workflows/train.yml",
    ".gitignore",
    "jobs/spirals/job.yaml",
    "jobs/spirals/train.py",
    "requirements.txt",
    "clusters/local.yaml",
)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have Trainyard installed from a wheel of this machine."""
    site = tmp_path / "lib/python3.11/site-packages"
    write_installation(site)
    monkeypatch.syspath_prepend(site)
    return site


@dataclass
class Repository:
    """The repository that git sees around every directory, by its top; None without one."""

    top: Path | None = None


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch) -> Repository:
    repository = Repository()
    monkeypatch.setattr(git, "top", lambda _: repository.top)
    return repository


@pytest.fixture
def make(site: Path, repository: Repository) -> Make:
    return lambda directory: new_project.make(directory, for_stream(io.StringIO()))


def direct_url(site: Path, text: dict[str, object]) -> None:
    (site / "trainyard_ray-0.1.0.dist-info/direct_url.json").write_text(json.dumps(text))


def test_an_empty_directory_gets_all_of_it(make: Make, tmp_path: Path) -> None:
    robots = tmp_path / "My Robots"
    wheel = "wheels/trainyard_ray-0.1.0-py3-none-any.whl"
    assert make(robots) == new_project.Made((*WRITTEN, wheel), (), {}, ())
    assert (robots / "requirements.txt").read_text() == f"{WHEEL}\n"
    assert "\nname: my-robots" in (robots / "clusters/local.yaml").read_text()
    assert sorted(
        path.relative_to(robots).as_posix() for path in robots.rglob("*") if path.is_file()
    ) == sorted((*WRITTEN, wheel))
    # The second time there is nothing to do.
    assert make(robots) == new_project.Made((), WRITTEN, {}, ())


def test_existing_files_are_kept_and_their_missing_lines_named(make: Make, tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("/results\nwheels/\n*.whl\n")
    (tmp_path / "requirements.txt").write_text("numpy\n# trainyard-ray, perhaps\n")
    before = {path: path.read_text() for path in tmp_path.iterdir() if path.is_file()}
    made = make(tmp_path)
    assert made.existed == (".gitignore", "requirements.txt")
    assert made.add == {
        ".gitignore": [".venv/", "__pycache__/", "!/wheels/", "!/wheels/*.whl"],
        "requirements.txt": [WHEEL],
    }
    assert {path: path.read_text() for path in before} == before


def test_requirements_that_name_trainyard_are_left_and_no_wheel_is_made(
    make: Make, tmp_path: Path
) -> None:
    (tmp_path / "requirements.txt").write_text("trainyard-ray[local] @ https://example.com/t.whl\n")
    made = make(tmp_path)
    assert (made.existed, made.add) == (("requirements.txt",), {})
    assert not (tmp_path / "wheels").exists()


def test_an_address_is_the_requirement(make: Make, site: Path, tmp_path: Path) -> None:
    direct_url(
        site,
        {"url": "https://example.com/t.git", "vcs_info": {"vcs": "git", "commit_id": "c0ffee"}},
    )
    made = make(tmp_path / "robots")
    assert made.written == WRITTEN
    line = "trainyard-ray[local] @ git+https://example.com/t.git@c0ffee\n"
    assert (tmp_path / "robots/requirements.txt").read_text() == line


@pytest.mark.parametrize("why", ["not installed", "no record", "not built"])
def test_without_a_requirement_it_says_that_ci_will_fail(
    make: Make,
    site: Path,
    tmp_path: Path,
    started: FakePrograms,
    monkeypatch: pytest.MonkeyPatch,
    why: str,
) -> None:
    if why == "not installed":
        monkeypatch.setattr(installed, "find", lambda: None)
        told = "Trainyard is not installed here"
    elif why == "no record":
        (site / "trainyard_ray-0.1.0.dist-info/RECORD").unlink()
        told = (
            "no wheel can be made of the installed Trainyard: no RECORD says which files are "
            "installed"
        )
    else:
        checkout = tmp_path / "checkout"
        checkout.mkdir()
        (checkout / "pyproject.toml").write_text("[project]\nversion = '1'\n")
        direct_url(site, {"url": f"file://{checkout}", "dir_info": {"editable": True}})
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        started.answer((2, "error: no such backend"))
        told = f"no wheel could be built of {checkout}\n  | error: no such backend"

    made = make(tmp_path / "robots")
    assert made.remarks == (f"requirements.txt does not name Trainyard, and CI will fail: {told}",)
    lines = (tmp_path / "robots/requirements.txt").read_text().splitlines()

    assert lines == [
        (
            "# Trainyard is on no package index: write the address of its wheel, or put the wheel "
            "into wheels/."
        ),
        "# trainyard-ray[local] @ https://HOST/trainyard_ray-0.1.0-py3-none-any.whl",
        "# ./wheels/trainyard_ray-0.1.0-py3-none-any.whl[local]",
    ]


def test_a_project_below_a_repository_s_top_is_told_where_github_looks(
    make: Make, tmp_path: Path, repository: Repository
) -> None:
    repository.top = tmp_path
    assert make(tmp_path / "a/robots").remarks == (
        "GitHub runs only workflows at the top of a repository: move "
        ".github/workflows/train.yml to "
        f"{tmp_path}, and give its job `defaults: {{run: {{working-directory: a/robots}}}}`",
    )


def test_the_files_of_a_project_are_those_of_the_repository() -> None:
    assert sorted(new_project.SHIPPED) == sorted(
        path.relative_to(ROOT / "project").as_posix()
        for path in (ROOT / "project").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    )


def test_the_workflow_names_whose_clusters_it_makes() -> None:
    workflow = yaml.safe_load((ROOT / "project" / new_project.WORKFLOW).read_text())
    assert workflow["env"] == {"TRAINYARD_OWNER": "${{ github.repository }}"}


def test_ignore_files_above_an_installation_leave_out_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    payload = tmp_path / ".venv/lib/trainyard/payload"
    runner = tmp_path / ".venv/lib/trainyard_runner"

    for path in (payload / "jobs/a/train.py", payload / "jobs/a/__pycache__/train.cpython-311.pyc"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("code")

    for name in ("__init__.py", "plan.py", "__pycache__/plan.cpython-311.pyc"):
        (runner / name).parent.mkdir(parents=True, exist_ok=True)
        (runner / name).write_text("code")

    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("plan*\ntrain.*\n")
    monkeypatch.setattr("trainyard.dispatch.ignore.PAYLOAD", payload)
    assert [file.name for file in package.listing(payload / "jobs/a").files] == ["train.py"]
    monkeypatch.setattr(trainyard_runner, "__file__", str(runner / "__init__.py"))
    with zipfile.ZipFile(package.runner_package().archive) as sent:
        assert sorted(sent.namelist()) == [
            "trainyard_runner/__init__.py",
            "trainyard_runner/plan.py",
        ]


def test_shipped_files_are_read_from_the_installed_package_or_checkout() -> None:
    assert paths.shipped("project") == ROOT / "project"
