"""Log files as dashboards of Ray 2.44 and older send them."""

from __future__ import annotations

from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.seams.ray_api import BLOCK, without_marks

ERROR = b"Closing HTTP stream due to internal server error."


class RefusedError(Exception):
    pass


def refuse(error: bytes) -> NoReturn:
    raise RefusedError(error)


def cut(sent: bytes, at: list[int]) -> list[bytes]:
    ends = [*sorted(at), len(sent)]
    return [sent[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


@given(size=st.integers(0, 3 * BLOCK), at=st.lists(st.integers(0, 3 * BLOCK), max_size=8))
def test_a_file_is_whole_however_the_network_cuts_it(size: int, at: list[int]) -> None:
    # Ones and noughts: what the marks are made of.
    file = (b"10" * size)[:size]
    blocks = [file[begin : begin + BLOCK] for begin in range(0, size, BLOCK)]
    chunks = cut(b"".join(b"1" + block for block in blocks), at)
    assert b"".join(without_marks(iter(chunks), refuse=refuse)) == file


@given(at=st.lists(st.integers(0, 50), max_size=4))
def test_an_error_is_no_part_of_the_file(at: list[int]) -> None:
    with pytest.raises(RefusedError) as caught:
        list(without_marks(iter(cut(b"0" + ERROR, at)), refuse=refuse))
    assert caught.value.args == (ERROR,)
