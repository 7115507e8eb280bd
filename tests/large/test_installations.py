"""The wheel installed by plain pip: each extra alone, no extra, and every Python found here."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.real.test_init import ROOT, built, run  # noqa: F401 (`built` is a fixture)
from trainyard import versions
from trainyard.tasks import namespace

PYTHONS = ("3.10", "3.12", "3.13")
# The documented exit codes of success, and of a command that this machine or project cannot run.
KNOWN_CODES = {0, 2, 3, 4, 5, 6}
# Required arguments of a task; a task without an entry needs none.
WORDS = {
    "cluster.new": ("another",),
    "cluster.scale": ("cpu=3",),
    "cluster.shell": ("--", "true"),
    "train.compare": ("a", "b"),
    "train.dispatch": ("spirals",),
    "train.import": ("nothing.py",),
    "tune.dispatch": ("cartpole-tune",),
}
BACKENDS = ("compose", "ec2", "existing", "kuberay", "local", "microk8s")
BY_BACKEND = ("cluster.plan", "cluster.status", "cluster.up", "cluster.down", "cluster.doctor")


@dataclass(frozen=True)
class Installation:
    """A virtual environment filled by plain pip, and a project of `init`, with nothing else."""

    home: Path

    @property
    def project(self) -> Path:
        return self.home / "robots"

    def environ(self) -> dict[str, str]:
        pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        nothing = str(self.home / "nothing")
        return {
            **pip,
            "PATH": f"{self.home / 'venv' / 'bin'}:/usr/bin:/bin",
            "HOME": str(self.home),
            "KUBECONFIG": nothing,
            "DOCKER_HOST": f"unix://{nothing}",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def pip(self, *requirements: str | Path) -> None:
        run(
            "pip",
            "install",
            "-q",
            *requirements,
            cwd=self.home,
            environ=self.environ(),
            seconds=1200,
        )

    def trainyard(self, *words: str) -> tuple[int, str]:
        ended = subprocess.run(
            ["trainyard", *words],
            cwd=self.project,
            env=self.environ(),
            check=False,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=300,
        )
        return ended.returncode, ended.stdout


def installation(home: Path, python: str) -> Installation:
    run(python, "-m", "venv", home / "venv", cwd=home)
    return Installation(home)


def refused(extra: str, what: str) -> str:
    return f"error: {what}\n  -> Install it: {versions.installing(extra)}"


NO_RAY = refused(
    "local", f"the local backend needs ray {versions.RAY}, and no ray is installed in this Python"
)
NO_BOTO3 = refused("ec2", "boto3, the library for AWS, is not installed")


@pytest.fixture(params=["", "local", "aws", "ec2", "tune"])
def extra(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def alone(extra: str, built: Path, tmp_path: Path) -> Iterator[Installation]:  # noqa: F811
    """Install the wheel with one extra, or with none."""
    made = installation(tmp_path, "python3")
    wheel = next(built.glob("*.whl"))
    made.pip(f"{wheel}[{extra}]" if extra else wheel)
    made.project.mkdir()
    yield made
    made.trainyard("cluster.down", "--end-runs")


def test_every_command_of_an_installation_ends_with_a_described_code(
    alone: Installation, extra: str
) -> None:
    code, printed = alone.trainyard("init")
    assert code == 0, printed

    for backend in BACKENDS:
        hosts = ["127.0.0.1:9"] if backend == "microk8s" else []
        alone.trainyard("cluster.new", f"my-{backend}", "--backend", backend, *hosts)

    asked = [
        (task, *WORDS.get(task, ()))
        for task in sorted(namespace.task_names)
        if task != "cluster.up"
    ]

    asked += [
        (task, "-f", f"my-{backend}")
        for task in BY_BACKEND
        for backend in BACKENDS
        if backend != "local"
    ]

    wrong = {}
    for words in asked:
        for json in ((), ("--json",)):
            at = words.index("--") if "--" in words else len(words)
            code, printed = alone.trainyard(*words[:at], *json, *words[at:])
            if code not in KNOWN_CODES or "a bug in" in printed or "Traceback" in printed:
                wrong[words] = f"exit {code}: {printed}"

    assert wrong == {}


def test_a_missing_package_is_reported_by_the_commands_that_need_it(
    alone: Installation, extra: str
) -> None:
    alone.trainyard("init")
    has_ray, has_boto3 = extra in ("local", "ec2"), extra in ("aws", "ec2")
    for words, is_installed, message in (
        (("cluster.up",), has_ray, NO_RAY),
        (("cluster.plan", "-f", "ec2"), has_boto3, NO_BOTO3),
    ):
        code, printed = alone.trainyard(*words)
        assert (message in printed) == (not is_installed), printed
        assert code == 3 or is_installed, printed

    alone.trainyard("cluster.new", "aws", "--backend", "ec2")
    code, printed = alone.trainyard("cluster.list")
    assert code == 0, printed
    assert ("aws: boto3, the library for AWS, is not installed" in printed) == (not has_boto3)
    assert re.search(r"(?m)^ aws +ec2 +unknown", printed), printed

    if has_ray:
        code, printed = alone.trainyard("tune.dispatch", "cartpole-tune")
        assert code == 3, printed
        assert (
            "error: a sweep needs optuna, and the Python of the cluster's head does not have it"
            in printed
        )
        assert f"-> Install it there: {versions.installing('tune')}" in printed
        assert not (alone.project / "results").exists()


@pytest.mark.parametrize("version", PYTHONS)
def test_the_ci_workflow_passes_with_every_python(
    version: str,
    built: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    python = interpreter(version)
    maker = tmp_path / "maker"
    maker.mkdir()
    user = installation(maker, python)
    user.pip(f"{next(built.glob('*.whl'))}[local]")
    run("trainyard", "init", "robots", cwd=maker, environ=user.environ())

    runner = tmp_path / "runner"
    runner.mkdir()
    ci = installation(runner, python)
    shutil.copytree(user.project, ci.project)
    workflow = yaml.safe_load((ci.project / ".github" / "workflows" / "train.yml").read_text())
    steps = [step["run"] for step in workflow["jobs"]["train"]["steps"] if "run" in step]
    try:
        for step in steps[:-1]:
            run("bash", "-ec", step, cwd=ci.project, environ=ci.environ(), seconds=1200)
    finally:
        last = run("bash", "-ec", steps[-1], cwd=ci.project, environ=ci.environ())

    assert "cluster robots is gone, nothing of it is left" in last
    assert len(list(ci.project.glob("results/spirals-*/outputs/*/result.json"))) == 3


def interpreter(version: str) -> str:
    """Return a Python of this version from PATH or pyenv; skip the test if there is none."""
    kept = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    for python in (f"python{version}", *map(str, kept)):
        found = (
            subprocess.run([python, "-c", ""], check=False, capture_output=True)
            if shutil.which(python)
            else None
        )
        if found and found.returncode == 0:
            return python
    pytest.skip(f"no Python {version} is installed here")
