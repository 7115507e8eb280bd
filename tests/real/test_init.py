"""The wheel and its files, and a project of `init` from it that passes its own CI workflow."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.real.yard import Yard
from trainyard import versions

ROOT = Path(__file__).resolve().parents[2]
UV, PIP = (Path(sys.executable).with_name(name) for name in ("uv", "pip"))


# Directories that only the repository has; all other directories are shipped.
STAYS = {"docs", "tests", "benchmarks", ".ci", ".github"}


def tracked(root: Path) -> list[str]:
    listed = run("git", "ls-files", "-z", cwd=root).split("\0")
    return [name for name in listed if name and (root / name).is_file()]


def in_wheel(name: str) -> str | None:
    first, _, rest = name.partition("/")
    if first in ("trainyard", "runner"):
        return name if first == "trainyard" else rest
    return f"trainyard/payload/{name}" if rest and first not in STAYS else None


def run(
    *command: str | Path,
    cwd: Path,
    environ: dict[str, str] | None = None,
    expect: int = 0,
    seconds: float = 240,
) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=environ,
        check=False,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=seconds,
    )
    assert done.returncode == expect, f"{command} exited {done.returncode}\n{done.stdout}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build wheel and sdist from a repository that also has files unknown to git."""
    source, dist = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in tracked(ROOT):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes((ROOT / name).read_bytes())
        (source / name).chmod((ROOT / name).stat().st_mode)

    run("git", "init", "-q", cwd=source)
    run("git", "add", "--all", "--force", cwd=source)

    for junk in (
        "images/mine/Dockerfile",
        "trainyard/tasks/scratch.py",
        "jobs/cartpole/model.ckpt",
    ):
        (source / junk).parent.mkdir(exist_ok=True)
        (source / junk).write_text("mine")

    # Builds the sdist from the repository, and the wheel from the sdist.
    run(UV, "build", "-q", "--out-dir", dist, ".", cwd=source)
    return dist


@pytest.mark.core
def test_wheel_and_sdist_contain_what_git_tracks(built: Path) -> None:
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        packed = {name for name in wheel.namelist() if ".dist-info/" not in name}
    schemas = {f"trainyard/payload/docs/{kind}.schema.json" for kind in ("cluster", "image", "job")}
    assert packed == schemas.union(filter(None, map(in_wheel, tracked(ROOT))))
    with tarfile.open(next(built.glob("*.tar.gz"))) as sdist:
        packed = {name.partition("/")[2] for name in sdist.getnames()}
    assert packed - {"PKG-INFO"} == set(tracked(ROOT))


@dataclass(frozen=True)
class Environment:
    """A virtual environment with pip, for Trainyard to be installed in."""

    home: Path

    def environ(self) -> dict[str, str]:
        theirs = ("RAY_", "TRAINYARD_", "PYTHON")
        kept = {key: value for key, value in os.environ.items() if not key.startswith(theirs)}
        path = f"{self.home / 'venv' / 'bin'}:/usr/bin:/bin"
        return {**kept, "PATH": path, "XDG_STATE_HOME": str(self.home / "state")}

    def run(self, *command: str | Path, cwd: Path, expect: int = 0) -> str:
        return run(*command, cwd=cwd, environ=self.environ(), expect=expect)


def environment(home: Path, *extras: str) -> Environment:
    """Make an environment with pip and the locked packages that Trainyard needs with these extras.

    uv links the packages, which takes 3 s: in these tests pip installs only Trainyard itself. In
    tests/large pip installs all of it.
    """
    home.mkdir()
    python = home / "venv" / "bin" / "python"
    run(UV, "venv", "-q", "--seed", "--python", sys.executable, home / "venv", cwd=home)
    flags = [word for extra in extras for word in ("--extra", extra)]
    requirements = home / "requirements.txt"

    resolve = (
        "pip",
        "compile",
        "-q",
        "--no-header",
        "-o",
        requirements,
        "-c",
        ROOT / "requirements.lock",
    )

    run(UV, *resolve, *flags, ROOT / "pyproject.toml", cwd=home)
    run(UV, "pip", "install", "-q", "--python", python, "-r", requirements, cwd=home)
    return Environment(home)


def test_a_project_of_an_installation_by_pip_passes_its_own_ci(built: Path, tmp_path: Path) -> None:
    """The user installs no extra; CI has a second environment, with what requirements.txt names."""
    user = environment(tmp_path / "user")
    user.run("pip", "install", "-q", next(built.glob("*.whl")), cwd=tmp_path)
    made = user.run("trainyard", "init", "My Robots", cwd=tmp_path)
    assert made.splitlines()[-1] == "next: cd 'My Robots' && trainyard cluster.up"
    project = tmp_path / "My Robots"

    for command, message, extra in (
        (
            ("cluster.up",),
            "the local backend needs ray 2.60.0, and no ray is installed in this Python",
            "local",
        ),
        (
            ("--debug", "cluster.plan", "-f", "ec2"),
            "boto3, the library for AWS, is not installed",
            "ec2",
        ),
    ):
        refused = user.run("trainyard", *command, cwd=project, expect=3)
        assert f"error: {message}\n  -> Install it: {versions.installing(extra)}" in refused

    # --debug adds the traceback, but none of Invoke's own log lines.
    assert "Traceback (most recent call last)" in refused
    assert not re.search(r"(?m)^invoke\.", refused)

    ci = environment(tmp_path / "ci", "local")
    workflow = yaml.safe_load((project / ".github" / "workflows" / "train.yml").read_text())
    steps = [step["run"] for step in workflow["jobs"]["train"]["steps"] if "run" in step]
    printed = []
    try:
        for step in steps[:-1]:
            printed.append(ci.run("bash", "-ec", step, cwd=project))
        ci.run("trainyard", "train.report", cwd=project)
        sweep = ci.run("trainyard", "tune.dispatch", "cartpole-tune", cwd=project, expect=3)
    finally:
        printed.append(ci.run("bash", "-ec", steps[-1], cwd=project))

    # Each command names the next one, written as the workflow runs it.
    following = [text.splitlines()[-1].removeprefix("next: ") for text in printed[1:]]
    run = next(project.glob("results/spirals-*")).name
    assert following == [*steps[2:4], f"trainyard train.watch {run}", "trainyard cluster.up"]
    assert "cluster my-robots is gone, nothing of it is left" in printed[-1]
    assert len(list(project.glob("results/spirals-*/outputs/*/result.json"))) == 3
    assert len(list(project.glob("results/spirals-*/report.html"))) == 1
    assert (
        f"does not have it\n  at {ci.home}/venv/bin/python\n  -> Install it there: pip install "
        "cmaes optuna"
    ) in sweep
    # The first curve that a user sees shows learning.
    (first, *_, last) = re.findall(r"step \d+: ([\d.]+)% right", printed[3])
    assert float(first) < 90 < 95 < float(last)


def test_the_first_step_of_ci_says_that_requirements_do_not_name_trainyard(tmp_path: Path) -> None:
    workflow = yaml.safe_load(
        (ROOT / "project" / ".github" / "workflows" / "train.yml").read_text()
    )
    first = next(step["run"] for step in workflow["jobs"]["train"]["steps"] if "run" in step)
    (tmp_path / "requirements.txt").write_text("# trainyard-ray[local] @ https://HOST/a.whl\n")
    run("python3", "-m", "venv", "--without-pip", tmp_path / "venv", cwd=tmp_path)
    environ = {"PATH": f"{tmp_path}/venv/bin:/usr/bin:/bin"}
    (tmp_path / "venv/bin/pip").symlink_to(PIP)
    failed = run("bash", "-ec", first, cwd=tmp_path, environ=environ, expect=1)
    assert failed.endswith("::error::requirements.txt does not name Trainyard\n")


def test_init_in_a_repository_writes_missing_files_and_names_lines_to_add(tmp_path: Path) -> None:
    trainyard = Path(sys.executable).with_name("trainyard")
    run("git", "init", "-q", cwd=tmp_path)
    # The .gitignore that GitHub proposes for Python.
    (tmp_path / ".gitignore").write_text("__pycache__/\nwheels/\n.venv\n")
    (tmp_path / "requirements.txt").write_text("numpy\n")
    run(trainyard, "--dry", "init", cwd=tmp_path)
    assert not (tmp_path / "jobs").exists()
    said = run(trainyard, "init", cwd=tmp_path)
    wheel = next((tmp_path / "wheels").iterdir()).name

    assert said.endswith(
        f"""unchanged: .gitignore, requirements.txt
add to the end of .gitignore:
    results/
    !/wheels/
    !/wheels/*.whl
add to the end of requirements.txt:
    ./wheels/{wheel}[local]
next: trainyard cluster.up
"""
    )

    assert (tmp_path / "requirements.txt").read_text() == "numpy\n"
    with (tmp_path / ".gitignore").open("a") as file:
        file.write("results/\n!/wheels/\n!/wheels/*.whl\n")

    run("git", "add", ".", cwd=tmp_path)
    assert f"wheels/{wheel}" in tracked(tmp_path)


def test_a_new_cluster_file_is_the_example_with_the_user_s_name_and_hosts(tmp_path: Path) -> None:
    yard = Yard(tmp_path)
    made = yard.run("cluster.new", "lab", "--backend", "microk8s", "ops@a", "ops@b:8022")
    assert (made.stdout, made.stderr) == (
        "clusters/lab.yaml\n",
        (
            "note: `registry:` is an example: write the address of yours\nnext: trainyard "
            "cluster.plan -f lab\n"
        ),
    )

    shown = yard.json("cluster.show", "-f", "lab")
    assert (shown["name"], shown["backend"], shown["workers"][0]["count"]) == ("lab", "microk8s", 1)
    assert [host["address"] for host in shown["microk8s"]["hosts"]] == ["ops@a", "ops@b:8022"]
    text = (tmp_path / "clusters" / "lab.yaml").read_text()
    assert "#   trainyard cluster.up   -f lab " in text

    for words, said in (
        (("lab",), "clusters/lab.yaml exists"),
        (("../lab",), "'../lab' cannot be a cluster's name"),
        (
            ("two", "--backend", "mikrok8s"),
            "no backend is called 'mikrok8s'; did you mean 'microk8s'?",
        ),
        (("two", "ops@a"), "the backend 'local' takes no hosts"),
        (("two", "-b", "microk8s", "a b"), "microk8s.hosts.0.address: must be [user@]host[:port]"),
    ):
        assert said in yard.run("cluster.new", *words, expect=2).stderr

    for backend in ("compose", "existing", "kuberay", "local"):
        yard.run("cluster.new", f"my-{backend}", "--backend", backend)
        assert yard.json("cluster.show", "-f", f"my-{backend}")["backend"] == backend

    assert len(list((tmp_path / "clusters").iterdir())) == 5
    assert (tmp_path / "clusters" / "lab.yaml").read_text() == text
