"""What Helm is asked, and what we make of what it says; Helm is a list of answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from trainyard.errors import NotReadyError, OutsideError, PrerequisiteError
from trainyard.seams import helm, programs
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
        (CHART, ("kuberay-operator", "--repo", "https://charts.example/helm/", "--version", "1.5.1")),
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
    ours().install("op", CHART, "kuberay-system", {"password": "s3cret"}, description="by trainyard")
    assert said.asked == [
        (
            *("upgrade", "op", *CHART.arguments, "--install", "--skip-crds", *IN),
            *("--description", "by trainyard", "--values", "-"),
        )
    ]
    assert said.given == [b'{"password": "s3cret"}']
    assert said.environs[0]["KUBECONFIG"] == "/home/ops/config"


def test_a_release_says_how_it_is_and_who_made_it(says: Callable[..., Said]) -> None:
    document = {"name": "op", "version": 3, "info": {"status": "deployed", "description": "by trainyard"}}
    said = says((0, f"WARNING: Kubernetes configuration file is group-readable\n{json.dumps(document)}"))
    assert ours().release("op", "kuberay-system") == Release("op", 3, "deployed", "by trainyard")
    assert said.asked == [("status", "op", *IN, "--output", "json")]


def test_a_release_that_is_not_there_or_was_removed_is_none(says: Callable[..., Said]) -> None:
    says((1, "Error: release: not found"), (0, json.dumps({"version": 1, "info": {"status": "uninstalled"}})))
    assert ours().release("op", "kuberay-system") is None
    assert ours().release("op", "kuberay-system") is None


def test_only_crds_of_a_chart_are_taken(says: Callable[..., Said]) -> None:
    says((0, "---\nkind: CustomResourceDefinition\nmetadata: {name: a}\n---\n---\nkind: ConfigMap\n"))
    assert ours().crds(CHART) == [{"kind": "CustomResourceDefinition", "metadata": {"name": "a"}}]


def test_a_release_whose_helm_was_killed_goes_back_to_what_ran_before(says: Callable[..., Said]) -> None:
    history = [{"revision": 1, "status": "superseded"}, {"revision": 2, "status": "deployed"}]
    said = says((0, json.dumps([*history, {"revision": 3, "status": "pending-upgrade"}])), (0, ""))
    ours().recover("op", "kuberay-system")
    assert said.asked[1] == ("rollback", "op", "2", *IN)


def test_a_first_release_whose_helm_was_killed_goes_away(says: Callable[..., Said]) -> None:
    said = says((0, json.dumps([{"revision": 1, "status": "pending-install"}])), (0, ""))
    ours().recover("op", "kuberay-system")
    assert said.asked[1] == ("uninstall", "op", *IN)


@pytest.mark.parametrize(
    ("code", "text", "kind", "lines"),
    [
        (
            1,
            'W0101 something\nError: namespaces "x" is forbidden: User "ops" cannot create',
            PrerequisiteError,
            [
                "you may not remove op",
                '  at namespaces "x" is forbidden: User "ops" cannot create',
                "  -> Ask whoever runs this Kubernetes.",
            ],
        ),
        (1, "Error: chart not found\n", OutsideError, ["Helm could not remove op", "  at chart not found"]),
        (1, "", OutsideError, ["Helm could not remove op", "  at it said nothing"]),
        (-2, "fetching", NotReadyError, [f"Helm did not remove op within {helm.SECONDS:.0f} s", "  at fetching"]),
    ],
    ids=["forbidden", "refused", "silent", "too slow"],
)
def test_why_helm_failed_is_its_own_last_word(
    says: Callable[..., Said], code: int, text: str, kind: type[Exception], lines: list[str]
) -> None:
    says((code, text))
    with pytest.raises(kind) as raised:
        ours().uninstall("op", "kuberay-system")
    assert str(raised.value) == "\n".join(lines)


def test_words_instead_of_json_are_no_answer(says: Callable[..., Said]) -> None:
    says((0, "hello"))
    with pytest.raises(OutsideError) as raised:
        ours().release("op", "kuberay-system")
    assert str(raised.value) == "Helm answered something that is no JSON\n  at hello"


def test_without_helm_it_says_what_to_do() -> None:
    with pytest.raises(PrerequisiteError) as raised:
        Helm({"PATH": ""}).crds(CHART)
    assert str(raised.value) == f"helm is not installed\n  -> {helm.INSTALL}"
