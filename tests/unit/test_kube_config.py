"""Which Kubernetes cluster is meant: kubeconfig files in, the way to a server out."""

from __future__ import annotations

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
        "clusters": [
            {"name": name, "cluster": {"server": f"https://{name}:6443/"}} for name in names
        ],
        "users": [{"name": name, "user": user} for name in names],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}} for name in names],
        "current-context": current,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content))
    return path


def find(
    tmp_path: Path, *files: Path, kubeconfig: str | None = None, context: str | None = None
) -> Access:
    environ = {"HOME": str(tmp_path)}
    if files:
        environ["KUBECONFIG"] = ":".join(map(str, files))
    return config.access(
        environ, kubeconfig=kubeconfig, context=context, relative_to=tmp_path / "clusters"
    )


def refusal(tmp_path: Path, *files: Path, context: str | None = None) -> list[str]:
    with pytest.raises(PrerequisiteError) as raised:
        find(tmp_path, *files, context=context)
    return raised.value.lines()


def test_the_default_is_the_current_context_of_the_home_directory_s_file(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path / ".kube" / "config", "lab", "prod", current="prod")
    assert find(tmp_path) == Access("prod", "https://prod:6443", "prod", (file,))


def test_the_first_of_several_kubeconfigs_sets_the_current_context(tmp_path: Path) -> None:
    first = kubeconfig(tmp_path / "first", "lab", current="lab")
    second = kubeconfig(tmp_path / "second", "prod", current="prod")
    merged = find(tmp_path, tmp_path / "not-there", first, second)
    assert (merged.context, merged.files) == ("lab", (first, second))
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
            "has no context 'prodd'; did you mean 'prod'?",
        ),
        ("contexts: [{name: lab}, {name: prod}]", None, "has no current context"),
        ("contexts: lab", None, "cannot be used: it is not a kubeconfig"),
        (
            "users:\n- token: s3cret\n  - [\n",
            None,
            "cannot be used: it is not YAML, or it is empty",
        ),
        (
            "contexts: [{name: lab}]",
            "lab",
            "cannot be used: context lab names no cluster that has a server",
        ),
    ],
)
def test_an_unusable_kubeconfig_is_explained_and_never_quoted(
    tmp_path: Path, text: str, context: str | None, what: str
) -> None:
    file = tmp_path / "config"
    file.write_text(text)
    lines = refusal(tmp_path, file, context=context)
    assert lines[:2] == [f"the kubeconfig {what}", f"  at {file}"]
    assert "s3cret" not in "\n".join(lines)


def test_without_any_kubeconfig_it_says_where_it_looked(tmp_path: Path) -> None:
    assert refusal(tmp_path)[:2] == ["there is no kubeconfig", f"  at {tmp_path}/.kube/config"]


def test_an_impersonating_user_is_refused_and_does_not_act_with_all_rights(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path / "config", "lab", current="lab", token="s3cret", **{"as": "intern"})
    what = (
        "user lab of the kubeconfig acts as another user (`as`), which Trainyard does not support"
    )
    assert refusal(tmp_path, file)[:2] == [what, f"  at {file}"]
