"""The flags of the next command name the same cluster."""

from __future__ import annotations

from pathlib import Path

from trainyard import lifecycle
from trainyard.typed import Typed

ALL = Typed("lab", ("name=x", "env.NAME=a b"), "local")


def test_what_was_not_typed_is_not_repeated() -> None:
    assert (Typed().cluster, Typed().image, Typed().train) == ("", "", "")


def test_every_family_of_tasks_gets_the_flags_that_it_takes() -> None:
    assert ALL.cluster == " -f lab --set name=x --set 'env.NAME=a b' --backend local"
    assert ALL.image == " -f lab --set name=x --set 'env.NAME=a b'"
    assert ALL.train == " -f lab --set cluster.name=x --set 'cluster.env.NAME=a b' --backend local"


def test_a_cluster_remembers_how_it_was_named(tmp_path: Path) -> None:
    found = lifecycle.find("local", {}, directory=tmp_path, overrides=["name=x"], backend="compose")
    assert found.flag == " -f local --set name=x --backend compose"
