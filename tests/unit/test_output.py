"""How results and next commands are printed."""

from __future__ import annotations

import pytest

from trainyard.tasks.output import as_typed


@pytest.mark.parametrize(
    ("program", "printed"),
    [
        ("/x/bin/invoke", "Make it: invoke cluster.up -f lab, or invoke --list"),
        ("/x/bin/trainyard", "Make it: trainyard cluster.up -f lab, or trainyard --list"),
    ],
)
def test_commands_are_named_as_the_user_types_them(program: str, printed: str) -> None:
    assert as_typed("Make it: invoke cluster.up -f lab, or invoke --list", program=program) == printed
