from __future__ import annotations

from pathlib import Path

import pytest

from tests.bad_input import BAD_INPUT, BadInput
from trainyard.errors import RequestError


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=f"{case.file}: {case.title}") for case in BAD_INPUT]
)
def test_it_is_refused_with_its_whole_message(
    case: BadInput, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case.write(tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RequestError) as refused:
        case.load()
    assert str(refused.value) == case.message
    assert "hunter2" not in case.message
