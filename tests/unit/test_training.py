"""train.dispatch reads two files at once, and speaks of its flags as they were typed."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainyard import training
from trainyard.errors import RequestError


def test_a_flag_for_the_cluster_file_is_named_as_it_was_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lab.yaml").write_text("{name: lab, backend: local}")
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "job.yaml").write_text("command: [sleep, '1']")
    flags = ["cluster.head.cpus=x", "retries=x"]
    with pytest.raises(RequestError) as caught:
        training.ready("job", ["lab.yaml"], overrides=flags, backend=None)
    assert [problem.where for problem in caught.value.problems] == ["--set cluster.head.cpus", "--set retries"]
