"""Questions to Helm, and how its answers are read; Helm is a list of answers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.fake_programs import FakePrograms
from trainyard.errors import OutsideError, PrerequisiteError, TrainyardError
from trainyard.seams.helm import Chart, Helm, Release

CHART = Chart("kuberay-operator", "https://charts.example/helm/", "1.5.1")
IN = ("--namespace", "kuberay-system", "--kube-context", "lab")


@pytest.fixture
def ours(tmp_path: Path) -> Helm:
    program = tmp_path / "helm"
    program.touch(mode=0o755)
    return Helm({"PATH": str(tmp_path)}, kubeconfig="/home/ops/config", context="lab")


@pytest.mark.parametrize(
    ("chart", "arguments"),
    [
        (Chart("./charts/kuberay-operator"), ("./charts/kuberay-operator",)),
        (Chart("./charts/kuberay-operator", version="1.5.1"), ("./charts/kuberay-operator",)),
        (
            CHART,
            ("kuberay-operator", "--repo", "https://charts.example/helm/", "--version", "1.5.1"),
        ),
        (
            Chart("kuberay-operator", "oci://registry.example/charts/", "1.5.1"),
            ("oci://registry.example/charts/kuberay-operator", "--version", "1.5.1"),
        ),
    ],
    ids=["directory", "a directory has one version", "repository", "registry"],
)
def test_a_chart_is_named_as_helm_takes_it(chart: Chart, arguments: tuple[str, ...]) -> None:
    assert chart.arguments == arguments


def test_values_go_through_stdin_and_nothing_is_waited_for(
    ours: Helm, started: FakePrograms
) -> None:
    started.answer((0, "Release installed"))
    ours.install("op", CHART, "kuberay-system", {"password": "s3cret"}, description="by trainyard")
    assert started.commands == [
        (
            ours.environ["PATH"] + "/helm",
            *("upgrade", "op", *CHART.arguments, "--install", "--skip-crds", *IN),
            *("--description", "by trainyard", "--values", "-"),
        )
    ]
    assert started.given == [b'{"password": "s3cret"}']
    assert started.environs[0]["KUBECONFIG"] == "/home/ops/config"


def test_a_release_says_how_it_is_and_who_made_it(ours: Helm, started: FakePrograms) -> None:
    document = {
        "name": "op",
        "version": 3,
        "info": {"status": "deployed", "description": "by trainyard"},
    }
    started.answer(
        (0, f"WARNING: Kubernetes configuration file is group-readable\n{json.dumps(document)}")
    )
    assert ours.release("op", "kuberay-system") == Release("deployed", "by trainyard")
    assert started.commands[0][1:] == ("status", "op", *IN, "--output", "json")


def test_a_release_that_is_not_there_or_was_removed_is_none(
    ours: Helm, started: FakePrograms
) -> None:
    started.answer(
        (1, "Error: release: not found"),
        (0, json.dumps({"version": 1, "info": {"status": "uninstalled"}})),
    )
    assert ours.release("op", "kuberay-system") is None
    assert ours.release("op", "kuberay-system") is None


@pytest.mark.parametrize(
    ("code", "text", "kind", "why"),
    [
        (
            1,
            'W0101 something\nError: User "ops" is forbidden',
            PrerequisiteError,
            'User "ops" is forbidden',
        ),
        (1, "Error: chart not found\n", OutsideError, "chart not found"),
        (1, "", OutsideError, "exit code 1"),
    ],
)
def test_why_helm_failed_is_its_own_last_word(
    ours: Helm, started: FakePrograms, code: int, text: str, kind: type[TrainyardError], why: str
) -> None:
    started.answer((code, text))
    with pytest.raises(kind) as raised:
        ours.uninstall("op", "kuberay-system")
    assert raised.value.lines() == ["Helm could not remove op", f"  at {why}"]


def test_a_chart_that_cannot_be_had_names_the_other_ways_to_it(
    ours: Helm, started: FakePrograms
) -> None:
    why = (
        'looks like "https://charts" is not a valid chart repository: dial tcp: lookup charts: '
        "no such host"
    )
    started.answer((1, f"Error: {why}"))

    with pytest.raises(OutsideError) as raised:
        ours.crds(Chart("kuberay-operator", "https://charts", "1.5.1"))

    assert raised.value.lines() == [
        "Helm could not read the chart kuberay-operator",
        f"  at {why}",
        "  -> If this machine cannot reach that repository, `helm pull` the chart on one that "
        "can, and name the "
        "directory or .tgz in the cluster file (kuberay.operator.chart). Or name a mirror "
        "(kuberay.operator.repository).",
    ]
