"""Questions to Helm, and how its answers are read; Helm is a list of answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from trainyard.errors import OutsideError, PrerequisiteError, TrainyardError
from trainyard.seams import programs
from trainyard.seams.helm import Chart, Helm, Release
from trainyard.seams.programs import Ended

CHART = Chart("kuberay-operator", "https://charts.example/helm/", "1.5.1")
IN = ("--namespace", "kuberay-system", "--kube-context", "lab")


@dataclass
class Said:
    """Answers in order: an exit code and the lines; and what they were asked for."""

    answers: list[tuple[int, str]]
    asked: list[tuple[str, ...]] = field(default_factory=list)
    given: list[bytes] = field(default_factory=list)
    environs: list[Mapping[str, str]] = field(default_factory=list)

    def run(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        stdin: bytes,
        on_line: Callable[[str], None],
        seconds: float,
    ) -> Ended:
        self.asked.append(tuple(command[1:]))
        self.given.append(stdin)
        self.environs.append(env)
        code, text = self.answers.pop(0)
        for line in text.splitlines():
            on_line(line)
        return Ended(code, tuple(text.splitlines()))


@pytest.fixture
def says(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Said]:
    def made(*answers: tuple[int, str]) -> Said:
        said = Said(list(answers))
        monkeypatch.setattr(programs, "find", lambda name, environ, hint: f"/bin/{name}")
        monkeypatch.setattr(programs, "run", said.run)
        return said

    return made


def ours() -> Helm:
    return Helm({"PATH": "/bin"}, kubeconfig="/home/ops/config", context="lab")


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


def test_values_go_through_stdin_and_nothing_is_waited_for(says: Callable[..., Said]) -> None:
    said = says((0, "Release installed"))
    ours().install(
        "op", CHART, "kuberay-system", {"password": "s3cret"}, description="by trainyard"
    )
    assert said.asked == [
        (
            *("upgrade", "op", *CHART.arguments, "--install", "--skip-crds", *IN),
            *("--description", "by trainyard", "--values", "-"),
        )
    ]
    assert said.given == [b'{"password": "s3cret"}']
    assert said.environs[0]["KUBECONFIG"] == "/home/ops/config"


def test_a_release_says_how_it_is_and_who_made_it(says: Callable[..., Said]) -> None:
    document = {
        "name": "op",
        "version": 3,
        "info": {"status": "deployed", "description": "by trainyard"},
    }
    said = says(
        (0, f"WARNING: Kubernetes configuration file is group-readable\n{json.dumps(document)}")
    )
    assert ours().release("op", "kuberay-system") == Release("deployed", "by trainyard")
    assert said.asked == [("status", "op", *IN, "--output", "json")]


def test_a_release_that_is_not_there_or_was_removed_is_none(says: Callable[..., Said]) -> None:
    says(
        (1, "Error: release: not found"),
        (0, json.dumps({"version": 1, "info": {"status": "uninstalled"}})),
    )
    assert ours().release("op", "kuberay-system") is None
    assert ours().release("op", "kuberay-system") is None


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
    says: Callable[..., Said], code: int, text: str, kind: type[TrainyardError], why: str
) -> None:
    says((code, text))
    with pytest.raises(kind) as raised:
        ours().uninstall("op", "kuberay-system")
    assert raised.value.lines() == ["Helm could not remove op", f"  at {why}"]


def test_a_chart_that_cannot_be_had_names_the_other_ways_to_it(says: Callable[..., Said]) -> None:
    why = (
        'looks like "https://charts" is not a valid chart repository: dial tcp: lookup charts: '
        "no such host"
    )
    says((1, f"Error: {why}"))

    with pytest.raises(OutsideError) as raised:
        ours().crds(Chart("kuberay-operator", "https://charts", "1.5.1"))

    assert raised.value.lines() == [
        "Helm could not read the chart kuberay-operator",
        f"  at {why}",
        "  -> If this machine does not reach that repository: `helm pull` the chart on one that "
        "does, and name the "
        "directory or .tgz in the cluster file (kuberay.operator.chart); or a mirror "
        "(kuberay.operator.repository).",
    ]
