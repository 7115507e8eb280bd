"""What is installed from a wheel, without a checkout: its files, and the whole way with a project that `init` made."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

from tests.real.yard import Yard

ROOT = Path(__file__).resolve().parents[2]
UV = Path(sys.executable).with_name("uv")


# What stays where it is developed; every other directory is shipped somewhere.
STAYS = {"docs", "tests", "benchmarks", ".ci", ".github"}


def tracked(root: Path) -> list[str]:
    listed = run("git", "ls-files", "-z", cwd=root).split("\0")
    return [name for name in listed if name and (root / name).is_file()]


def in_wheel(name: str) -> str | None:
    first, _, rest = name.partition("/")
    if first in ("trainyard", "runner"):
        return name if first == "trainyard" else rest
    return f"trainyard/payload/{name}" if rest and first not in STAYS else None


def run(*command: str | Path, cwd: Path, environ: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=environ,
        check=False,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=240,
    )
    assert done.returncode == 0, f"{command} exited {done.returncode}\n{done.stdout}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build wheel and sdist from a repository in which also lies what git does not track."""
    source, dist = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in tracked(ROOT):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes((ROOT / name).read_bytes())
        (source / name).chmod((ROOT / name).stat().st_mode)
    run("git", "init", "-q", cwd=source)
    run("git", "add", "--all", "--force", cwd=source)
    for junk in ("images/mine/Dockerfile", "trainyard/tasks/scratch.py", "jobs/cartpole/model.ckpt"):
        (source / junk).parent.mkdir(exist_ok=True)
        (source / junk).write_text("mine")
    # The sdist from the repository, and the wheel from the sdist.
    run(UV, "build", "-q", "--out-dir", dist, ".", cwd=source)
    return dist


def test_wheel_and_sdist_contain_what_git_tracks(built: Path) -> None:
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        packed = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert packed == set(filter(None, map(in_wheel, tracked(ROOT))))
    with tarfile.open(next(built.glob("*.tar.gz"))) as sdist:
        packed = {name.partition("/")[2] for name in sdist.getnames()}
    assert packed - {"PKG-INFO"} == set(tracked(ROOT))


@pytest.fixture
def installed(built: Path, tmp_path: Path) -> dict[str, str]:
    """Install the wheel as `pip install trainyard[local]` does, at the locked versions; return the environment."""
    venv = tmp_path / "venv"
    run(UV, "venv", "-q", "--python", sys.executable, venv, cwd=tmp_path)
    wheel = f"{next(built.glob('*.whl'))}[local]"
    lock = ROOT / "requirements.lock"
    run(UV, "pip", "install", "-q", "--python", venv / "bin" / "python", "-c", lock, wheel, cwd=tmp_path)
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("RAY_", "TRAINYARD_", "PYTHON"))}
    path = f"{venv / 'bin'}:/usr/bin:/bin"
    return {**kept, "PATH": path, "VIRTUAL_ENV": str(venv), "XDG_STATE_HOME": str(tmp_path / "state")}


def test_a_new_project_trains_as_its_ci_workflow_says(installed: dict[str, str], tmp_path: Path) -> None:
    made = run("trainyard", "init", "My Robots", cwd=tmp_path, environ=installed)
    assert made.splitlines()[-1] == "next: cd 'My Robots' && trainyard cluster.up"
    project = tmp_path / "My Robots"
    workflow = yaml.safe_load((project / ".github" / "workflows" / "train.yml").read_text())
    steps = [step["run"] for step in workflow["jobs"]["train"]["steps"] if "run" in step]
    assert steps[0] == "pip install -r requirements.txt", "the wheel stands for it here"
    assert (project / "requirements.txt").read_text().startswith("trainyard[local]==")
    printed = []
    try:
        for step in steps[1:-1]:
            printed.append(run("bash", "-ec", step, cwd=project, environ=installed))
    finally:
        printed.append(run("bash", "-ec", steps[-1], cwd=project, environ=installed))
    # Each command names the next one as it is typed here.
    following = [text.splitlines()[-1].removeprefix("next: ") for text in printed]
    assert following == [*steps[2:4], "trainyard train.list", "trainyard cluster.up"]
    assert "cluster my-robots is gone, nothing of it is left" in printed[-1]
    assert len(list(project.glob("results/spirals-*/outputs/*/result.json"))) == 3


def test_init_overwrites_nothing(tmp_path: Path) -> None:
    trainyard = Path(sys.executable).with_name("trainyard")
    (tmp_path / ".gitignore").write_text("mine")
    refused = subprocess.run([trainyard, "init"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert refused.returncode == 2
    assert ".gitignore: exists" in refused.stderr
    assert [path.name for path in tmp_path.iterdir()] == [".gitignore"]
    run(trainyard, "--dry", "init", "other", cwd=tmp_path)
    assert not (tmp_path / "other").exists()


def test_a_new_cluster_file_is_the_example_with_a_name_and_hosts_of_one_s_own(tmp_path: Path) -> None:
    yard = Yard(tmp_path)
    made = yard.run("cluster.new", "lab", "--backend", "microk8s", "ops@a", "ops@b:8022")
    assert (made.stdout, made.stderr) == (
        "clusters/lab.yaml\n",
        "note: `registry:` is an example: write the address of yours\nnext: trainyard cluster.plan -f lab\n",
    )
    shown = yard.json("cluster.show", "-f", "lab")
    assert (shown["name"], shown["backend"], shown["workers"][0]["count"]) == ("lab", "microk8s", 1)
    assert [host["address"] for host in shown["microk8s"]["hosts"]] == ["ops@a", "ops@b:8022"]
    text = (tmp_path / "clusters" / "lab.yaml").read_text()
    assert "#   trainyard cluster.up   -f lab " in text
    for words, said in (
        (("lab",), "clusters/lab.yaml exists"),
        (("../lab",), "'../lab' is no cluster's name"),
        (("two", "--backend", "mikrok8s"), "no backend is called 'mikrok8s'; did you mean 'microk8s'?"),
        (("two", "ops@a"), "the backend 'local' takes no hosts"),
        (("two", "-b", "microk8s", "a b"), "microk8s.hosts.0.address: must be [user@]host[:port]"),
    ):
        assert said in yard.run("cluster.new", *words, expect=2).stderr
    for backend in ("compose", "existing", "kuberay", "local"):
        yard.run("cluster.new", f"my-{backend}", "--backend", backend)
        assert yard.json("cluster.show", "-f", f"my-{backend}")["backend"] == backend
    assert len(list((tmp_path / "clusters").iterdir())) == 5
    assert (tmp_path / "clusters" / "lab.yaml").read_text() == text
