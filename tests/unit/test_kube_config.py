"""Which Kubernetes cluster is meant: kubeconfig files in, the way to a server out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from trainyard.errors import PrerequisiteError
from trainyard.seams.kube import config
from trainyard.seams.kube.config import Access


def kubeconfig(path: Path, *names: str, current: str | None = None, **user: Any) -> Path:
    """Write a kubeconfig with one context, cluster and user of each name."""
    content = {
        "clusters": [{"name": name, "cluster": {"server": f"https://{name}:6443/"}} for name in names],
        "users": [{"name": name, "user": user} for name in names],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}} for name in names],
        "current-context": current,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content))
    return path


def find(tmp_path: Path, *files: Path, kubeconfig: str | None = None, context: str | None = None) -> Access:
    environ = {"HOME": str(tmp_path), "PATH": str(tmp_path)}
    if files:
        environ["KUBECONFIG"] = ":".join(map(str, files))
    return config.find(environ, kubeconfig=kubeconfig, context=context, relative_to=tmp_path / "clusters")


def refusal(tmp_path: Path, *files: Path, **asked: str) -> list[str]:
    with pytest.raises(PrerequisiteError) as raised:
        find(tmp_path, *files, **asked)
    return raised.value.lines()


def test_without_a_word_it_is_the_current_context_of_the_file_in_the_home_directory(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path / ".kube" / "config", "lab", "prod", current="prod")
    assert find(tmp_path) == Access("prod", "https://prod:6443", "default", "prod", (file,))


def test_of_several_files_the_first_that_says_something_counts(tmp_path: Path) -> None:
    first = kubeconfig(tmp_path / "first", "lab", current="lab")
    second = kubeconfig(tmp_path / "second", "prod", current="prod")
    found = find(tmp_path, tmp_path / "not-there", first, second)
    assert (found.context, found.files) == ("lab", (first, second))
    assert find(tmp_path, first, second, context="prod").server == "https://prod:6443"


def test_a_file_that_the_cluster_file_names_is_its_neighbour(tmp_path: Path) -> None:
    kubeconfig(tmp_path / "clusters" / "lab.kubeconfig", "lab", current="lab")
    assert find(tmp_path, kubeconfig="lab.kubeconfig").context == "lab"
    kubeconfig(tmp_path / "mine", "prod", current="prod")
    assert find(tmp_path, kubeconfig="~/mine").context == "prod"


@pytest.mark.parametrize(
    ("text", "context", "what"),
    [
        (
            "contexts: [{name: lab}, {name: prod}]",
            "prodd",
            "the kubeconfig has no context 'prodd'; did you mean 'prod'?",
        ),
        ("contexts: [{name: lab}, {name: prod}]", None, "the kubeconfig has no current context"),
        ("- lab", None, "the kubeconfig cannot be used: it is not a kubeconfig"),
        ("users:\n- token: s3cret\n  - [\n", None, "the kubeconfig cannot be used: it is not YAML (line 3)"),
        (
            "contexts: [{name: lab, context: {cluster: gone, user: me}}]\ncurrent-context: lab\n",
            None,
            "the kubeconfig cannot be used: context lab names a cluster 'gone' that is not there",
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_told_and_never_quoted(
    tmp_path: Path, text: str, context: str | None, what: str
) -> None:
    file = tmp_path / "config"
    file.write_text(text)
    lines = refusal(tmp_path, file, **({"context": context} if context else {}))
    assert lines[:2] == [what, f"  at {file}"]
    assert "s3cret" not in "\n".join(lines)


def test_without_any_kubeconfig_it_says_where_it_looked(tmp_path: Path) -> None:
    assert refusal(tmp_path) == [
        "there is no kubeconfig",
        f"  at {tmp_path}/.kube/config",
        "  -> Set KUBECONFIG, or name the file in the cluster file (kubeconfig: ...).",
    ]


def test_a_program_that_logs_in_and_is_not_installed_is_told_with_its_own_hint(tmp_path: Path) -> None:
    plugin = {"command": "cloud-login", "apiVersion": "v1", "installHint": "See https://cloud.example/login\n\nmore"}
    file = kubeconfig(tmp_path / "config", "lab", current="lab", exec=plugin)
    assert refusal(tmp_path, file) == [
        "cloud-login is not installed, and the kubeconfig logs in with it",
        f"  at user lab of {file}",
        "  -> See https://cloud.example/login",
    ]


def test_a_program_beside_the_kubeconfig_is_found(tmp_path: Path) -> None:
    program = tmp_path / "tools" / "login"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    file = kubeconfig(tmp_path / "config", "lab", current="lab", exec={"command": "tools/login"})
    assert find(tmp_path, file).plugin == "tools/login"


def test_a_user_who_acts_as_somebody_else_is_refused_instead_of_acting_with_all_rights(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path / "config", "lab", current="lab", token="s3cret", **{"as": "intern"})
    assert refusal(tmp_path, file) == [
        "user lab of the kubeconfig acts as somebody else (`as`), which Trainyard cannot",
        f"  at {file}",
        "  -> Use a context whose user has these rights itself.",
    ]


def test_in_a_pod_the_service_account_is_used_if_nothing_else_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "MOUNTED", tmp_path)
    (tmp_path / "token").write_text("s3cret")
    (tmp_path / "namespace").write_text("team\n")
    inside = {"HOME": str(tmp_path), "KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    assert config.find(inside) == Access("", "https://[fd00::1]:443", "team", "the pod's service account")
    with pytest.raises(PrerequisiteError):
        config.find(inside, context="lab")


def test_the_same_question_has_the_same_answer(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path / "config", "lab", current="lab")
    environ = {"HOME": str(tmp_path), "KUBECONFIG": str(file)}
    assert config.connect(environ) is config.connect(environ)


def test_a_place_is_called_by_its_context_and_from_inside_a_pod_by_its_address() -> None:
    access = Access(context="lab", server="https://192.0.2.1:6443", namespace="default", user="me")
    assert access.place == "context lab"
    assert replace(access, context="").place == "https://192.0.2.1:6443"
