"""A job that brings its own packages: Ray installs them on the node, for the job's tasks alone."""

from __future__ import annotations

import io
import re
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from tests.real.jobs import newest, write_job
from tests.real.wheels import write_wheel
from tests.real.yard import Yard
from trainyard.console.progress import PlainProgress
from trainyard.dispatch import wheels

# The package has its own build backend, so that a build fetches nothing.
PYPROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""
BACKEND = """
import zipfile

def build_wheel(directory, config_settings=None, metadata_directory=None):
    with zipfile.ZipFile(f"{directory}/parting-2.0-py3-none-any.whl", "w") as wheel:
        wheel.write("parting.py")
        wheel.writestr("parting-2.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: parting\\nVersion: 2.0\\n")
        wheel.writestr(
            "parting-2.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
        )
        wheel.writestr("parting-2.0.dist-info/RECORD", "")
    return "parting-2.0-py3-none-any.whl"
"""


def write_package(directory: Path) -> None:
    """Write a package from which a wheel of one module can be built."""
    directory.mkdir(parents=True)
    (directory / "pyproject.toml").write_text(PYPROJECT)
    (directory / "backend.py").write_text(BACKEND)
    (directory / "parting.py").write_text("WORDS = 'and good bye'\n")


def test_wheels_are_built_and_installed_as_a_runtime_env_file_says(
    yard: Yard, tmp_path: Path
) -> None:
    here = replace(yard, environ={**yard.environ, "XDG_CACHE_HOME": str(tmp_path)})
    write_job(
        here,
        "wheels",
        "command: [python, train.py]\nruntime_env: runtime_env.yaml\n",
        train="""
        import os, greeting, parting
        print(greeting.WORDS, "in", os.environ["PLACE"], parting.WORDS)
        """,
    )

    job = here.home / "jobs" / "wheels"
    (job / "runtime_env.yaml").write_text(
        "uv: ['${RAY_RUNTIME_ENV_CREATE_WORKING_DIR}/dist/greeting-1.0-py3-none-any.whl']\n"
        "wheels: [../../packages/parting]\nenv_vars: {PLACE: the yard}\n"
    )
    write_wheel(job / "dist")
    write_package(here.home / "packages" / "parting")
    assert (
        "Build a wheel of parting (done"
        in here.run("train.dispatch", "wheels", "--skip-smoke").stderr
    )
    log = newest(here) / "logs" / "wheels.1.log"
    assert log.read_text() == "hello from a wheel in the yard and good bye\n"
    assert (
        "Build a wheel of parting (already"
        in here.run("train.dispatch", "wheels", "--no-wait").stderr
    )
    here.run("train.logs")


def test_a_package_that_cannot_be_built_sends_nothing_and_shows_why(
    yard: Yard, tmp_path: Path
) -> None:
    here = replace(yard, environ={**yard.environ, "XDG_CACHE_HOME": str(tmp_path)})
    write_package(here.home / "jobs" / "broken" / "mine")
    (here.home / "jobs" / "broken" / "mine" / "backend.py").write_text(
        "raise SystemExit('no backend today')\n"
    )
    write_job(here, "broken", "command: ['true']\nruntime_env: {wheels: [mine]}\n")
    failed = here.run("train.dispatch", "broken", expect=2)
    assert "error: no wheel could be built of " in failed.stderr
    assert "no backend today" in failed.stderr
    assert not list(here.results.glob("broken-*"))


# A backend that takes the version from git, as plugins of build systems do.
FROM_GIT = BACKEND.replace("import zipfile\n", "import subprocess, zipfile\n").replace(
    "def build_wheel(directory, config_settings=None, metadata_directory=None):\n",
    """def build_wheel(directory, config_settings=None, metadata_directory=None):
    command = ["git", "describe", "--tags", "--dirty=+changed"]
    version = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    with open("parting.py", "a") as module:
        module.write(f"VERSION = {version!r}\\n")
""",
)


def git(directory: Path, *words: str) -> str:
    own = [
        "-c",
        "user.name=tests",
        "-c",
        "user.email=tests@example.com",
        "-c",
        "init.defaultBranch=main",
    ]
    command = ["git", "-C", str(directory), *own, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_a_package_with_a_version_from_git_has_that_of_a_build_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    mono = tmp_path / "mono"
    package = mono / "packages" / "parting"
    write_package(package)
    (package / "backend.py").write_text(FROM_GIT)
    (mono / "other.txt").write_text("of another package\n")
    (mono / "link").symlink_to("other.txt")
    git(mono, "init")
    git(mono, "add", ".")
    git(mono, "commit", "-m", "one")
    git(mono, "tag", "2.1")
    said = io.StringIO()

    def version() -> str:
        (wheel,) = wheels.built([package], PlainProgress(said))
        with zipfile.ZipFile(wheel) as content:
            return content.read("parting.py").decode().split("VERSION = ")[1].strip("'\n")

    assert (version(), version()) == ("2.1", "2.1")
    assert said.getvalue().count("Build a wheel of parting (already") == 1
    # Any difference from the last commit counts, also outside the package; the wheel shows it.
    (mono / "other.txt").unlink()
    assert version() == "2.1+changed"
    git(mono, "commit", "-a", "-m", "two")
    (package / "parting.py").write_text("WORDS = 'until tomorrow'\n")
    assert re.fullmatch(r"2\.1-1-g[0-9a-f]+\+changed", version())
    git(mono, "commit", "-a", "-m", "three")
    git(mono, "tag", "2.2")
    assert version() == "2.2"
    # Build plugins can be given a version by this variable: that counts as a change as well.
    monkeypatch.setenv("SETUPTOOLS_SCM_PRETEND_VERSION", "3.0")
    assert version() == "2.2"
    assert said.getvalue().count("Build a wheel of parting (done") == 5
    # Builds leave nothing in the repository.
    assert git(mono, "status", "--porcelain") == ""


def test_packages_that_break_ray_end_the_task_at_the_second_equal_crash(yard: Yard) -> None:
    """As `uv: ["numpy<2", pyarrow]` does: Ray imports pyarrow before a task begins."""
    directory = yard.home / "jobs" / "conflict"
    wheel = write_wheel(
        directory,
        "pyarrow",
        "raise ImportError('pyarrow requires NumPy 2.0 or newer, found 1.26.4')\n",
    )

    write_job(
        yard, "conflict", f"command: ['true']\nretries: 5\nruntime_env: {{wheels: [{wheel}]}}\n"
    )
    failed = yard.run("train.dispatch", "conflict", "--skip-smoke", expect=1)
    words = "ImportError: pyarrow requires NumPy 2.0 or newer, found 1.26.4"
    assert f"before the task began: {words}" in failed.stdout
    (task,) = yard.json("train.status")["tasks"]
    assert (task["state"], len(task["attempts"])) == ("failed", 2)
    assert f"    {words}" in failed.stdout


def test_conda_on_a_node_that_has_none_ends_the_task_at_once(yard: Yard) -> None:
    write_job(yard, "conda", "command: ['true']\nretries: 5\nruntime_env: {conda: learn}\n")
    failed = yard.run("train.dispatch", "conda", "--skip-smoke", expect=1)
    assert "never ran: its runtime_env could not be set up" in failed.stdout
    assert "Could not find Conda executable" in failed.stdout
    (task,) = yard.json("train.status")["tasks"]
    assert (task["state"], len(task["attempts"])) == ("failed", 1)
