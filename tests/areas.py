"""The tiers that test a change, by the paths that it touches (`make test-changed`)."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pathspec

from tests.tiers import LIFECYCLE, TIERS

ROOT = Path(__file__).parents[1]
SIX_HOURS = 6 * 3600
# The tiers besides core.
EVERY = TIERS[1:]
# PATHS: the tiers that test a change of them. The patterns are those of .gitignore, and the last
# row that matches a path counts. Unit tests and core always run: a path whose row names no tier
# needs only these.
AREAS: tuple[tuple[str, tuple[str, ...]], ...] = (
    # Code that every backend shares: the tier `lifecycle` tries the life of a cluster on each
    # backend.
    ("/trainyard/", (LIFECYCLE,)),
    ("/tasks.py /invoke.yaml", ()),
    ("/trainyard/main.py /trainyard/console/", ()),
    (
        (
            "/trainyard/operations/new_project.py /trainyard/operations/usage.py "
            "/trainyard/operations/cluster_list.py"
        ),
        (),
    ),
    ("/trainyard/tasks/ /trainyard/results/", ("local",)),
    (
        "/trainyard/importing/ /trainyard/operations/sweeps.py /trainyard/operations/resume.py",
        ("local",),
    ),
    (
        "/trainyard/operations/runs.py /trainyard/operations/new_run.py "
        "/trainyard/operations/run_guard.py /trainyard/dispatch/",
        ("local", "docker"),
    ),
    ("/trainyard/api/ /trainyard/sematic.py", ("local", "docker", "kubernetes")),
    ("/trainyard/images/ /trainyard/registry/", ("docker",)),
    # Backends, and the seams that one of them uses.
    ("/trainyard/backends/local/", ("local",)),
    (
        "/trainyard/seams/keeper.py /trainyard/seams/processes.py /trainyard/seams/ray_launcher.py",
        ("local",),
    ),
    (
        "/trainyard/seams/programs.py /trainyard/seams/git.py /trainyard/seams/installed.py",
        ("local",),
    ),
    ("/trainyard/seams/local_leash.py /trainyard/seams/nvidia.py", ("local",)),
    ("/trainyard/backends/existing/", ("local", "kubernetes")),
    (
        "/trainyard/backends/compose/ /trainyard/seams/docker/ /trainyard/seams/registry/ /compose/",
        ("docker",),
    ),
    ("/trainyard/backends/kuberay/ /trainyard/seams/helm.py /kuberay/", ("kubernetes",)),
    ("/trainyard/seams/kube/", ("local", "kubernetes")),
    ("/trainyard/seams/node_ports.py /tests/real/forwarded.py", ("docker",)),
    ("/trainyard/backends/microk8s/ /microk8s/", ("local", "microk8s")),
    ("/trainyard/seams/ssh/", ("local", "docker", "microk8s", "ec2")),
    ("/trainyard/backends/ec2/ /trainyard/seams/ray_autoscaler.py /ray_autoscaler/", ("ec2",)),
    ("/trainyard/seams/aws.py /trainyard/seams/aws_prices.py /trainyard/seams/iam.py", ("ec2",)),
    ("/trainyard/seams/ecr.py", ("docker", "ec2")),
    ("/trainyard/backends/shared/", (LIFECYCLE,)),
    ("/trainyard/backends/shared/leash.py", ("local", "docker", "kubernetes", "ec2")),
    ("/runner/", ("local", "docker")),
    # Files that are sent or built.
    ("/jobs/ /project/ /clusters/", ("local",)),
    ("/images/", ("docker",)),
    # The tests themselves.
    ("/tests/", ()),
    ("/tests/real/", ("local",)),
    ("/tests/real/test_compose* /tests/real/test_docker* /tests/real/test_image_*", ("docker",)),
    ("/tests/real/test_registry* /tests/real/registries.py /tests/real/planted.py", ("docker",)),
    (
        "/tests/real/test_nvidia.py /tests/real/test_the_whole_way.py /tests/real/test_ssh.py",
        ("docker",),
    ),
    ("/tests/real/test_compose.py", ("local", "docker")),
    (
        "/tests/real/test_leash.py /tests/real/test_python.py /tests/real/own_files.py",
        ("local", "docker", "kubernetes"),
    ),
    ("/tests/real/*kube*", ("kubernetes",)),
    ("/tests/real/*microk8s* /tests/real/lab.py", ("microk8s",)),
    ("/tests/real/test_kube_seams.py", ("local", "kubernetes")),
    ("/tests/real/test_microk8s_many.py", ("local",)),
    ("/tests/real/*ec2*", ("ec2",)),
    ("/tests/real/test_ec2_bed.py", ("bed",)),
    ("/tests/real/plain_ray_up.py", ("ec2", "bed")),
    ("/tests/real/conftest.py /tests/real/yard.py", EVERY),
    ("/tests/bed/ /tests/bed/dockerfiles/ray/", TIERS[2:]),
    (
        "/tests/bed/host.py /tests/bed/dockerfiles/host/ /tests/bed/dockerfiles/ray-root/",
        ("docker",),
    ),
    ("/tests/bed/nvidia.py /tests/bed/dockerfiles/registry/", ("docker",)),
    ("/tests/bed/kubernetes.py /tests/bed/chart* /tests/bed/dockerfiles/ray-gpu/", ("kubernetes",)),
    ("/tests/bed/go/ /tests/bed/programs.py /tests/bed/layers.py", ("kubernetes", "microk8s")),
    ("/tests/bed/go/plugins/", ("docker",)),
    (
        "/tests/bed/control_plane.py /tests/bed/nodes.py /tests/bed/manifests/",
        ("kubernetes", "microk8s"),
    ),
    (
        "/tests/bed/dockerfiles/kube-host/ /tests/bed/dockerfiles/scratch-program/",
        ("kubernetes", "microk8s"),
    ),
    ("/tests/bed/microk8s.py /tests/bed/dockerfiles/microk8s-host/", ("microk8s",)),
    ("/tests/bed/aws_* /tests/bed/ec2.py /tests/bed/instances.py", ("ec2", "bed")),
    ("/tests/bed/dockerfiles/ec2-instance/ /tests/bed/dockerfiles/ray-aws/", ("ec2", "bed")),
    ("/tests/bed/mlflow.py /tests/bed/many_hosts.py", ("local",)),
    ("/tests/bed/__main__.py /tests/bed/by_hand.py", ()),
    ("/tests/bed/dockerfiles/ado/ /tests/bed/dockerfiles/schola-base/", ()),
    ("/tests/standins/", ("local", "docker")),
    # Everything runs on these versions.
    ("/requirements*.lock", EVERY),
    ("/Makefile /.ci/ /.github/ /.gitignore /LICENSE", ()),
    ("/pyproject.toml /hatch_build.py", ("local",)),
    # Unit tests check the links and words of pages, `make test-large` runs their commands.
    ("*.md /docs/ /benchmarks/", ()),
)


def tiers_of(path: str) -> tuple[str, ...]:
    """Return the tiers besides core that test a change of a path; LookupError if no row matches."""
    for spec, tiers in _rows():
        if spec.match_file(path):
            return tiers
    raise LookupError(path)


@cache
def _rows() -> list[tuple[pathspec.GitIgnoreSpec, tuple[str, ...]]]:
    """Return the rows with their patterns ready, the last one first."""
    return [
        (pathspec.GitIgnoreSpec.from_lines(patterns.split()), tiers)
        for patterns, tiers in reversed(AREAS)
    ]


def tiers_of_all(paths: Iterable[str]) -> list[str]:
    """Return the tiers besides core that test a change of paths; an unknown path needs all."""
    found: set[str] = set()
    for path in paths:
        try:
            found.update(tiers_of(path))
        except LookupError:
            found.update(EVERY)
    if found >= set(EVERY):
        found.discard(LIFECYCLE)
    return [tier for tier in (*EVERY, LIFECYCLE) if tier in found]


def base(given: str = "") -> str | None:
    """Return the commit to compare with: `given`, or the branch's merge base with `origin/main`.

    Where the merge base is HEAD itself, or there is no `origin/main`: the newest commit of main
    that is at least six hours older than HEAD. None where the history does not reach back so far.
    """
    if given:
        return _git("rev-parse", "--verify", f"{given}^{{commit}}")
    head = _git("rev-parse", "HEAD")
    try:
        merged = _git("merge-base", "origin/main", "HEAD")
    except subprocess.CalledProcessError:
        merged = head
    if merged != head:
        return merged
    before = int(_git("log", "-1", "--format=%ct", "HEAD")) - SIX_HOURS
    return _git("rev-list", "--first-parent", "-1", f"--before={before}", _main()) or None


def tracked() -> list[str]:
    """Return the paths of the files that git tracks; a new one counts once it is added."""
    return _git("ls-files", "-z").rstrip("\0").split("\0")


def changed(since: str) -> list[str]:
    """Return the paths that differ from a commit, including uncommitted and untracked files."""
    tracked = _git("diff", "--name-only", "--no-renames", since)
    return [*tracked.splitlines(), *_git("ls-files", "--others", "--exclude-standard").splitlines()]


def tiers_of_change(given: str = "") -> list[str]:
    """Return the tiers besides core that test the changes since `base`; all if there is no base."""
    since = base(given)
    return tiers_of_all(changed(since)) if since else list(EVERY)


def _main() -> str:
    """Return main, or HEAD in a clone that has no such branch."""
    try:
        return _git("rev-parse", "--verify", "--quiet", "main")
    except subprocess.CalledProcessError:
        return "HEAD"


def _git(*words: str) -> str:
    return subprocess.run(
        ["git", *words], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout.strip()
