"""Draw a table within a width, without broken words or empty columns."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

from rich.cells import cell_len, set_cell_size

# Cells that count as empty.
_NOTHING = ("", "-")
# Spaces between columns, tried in this order.
_GAPS = (3, 2, 1)
# The width of the left and right edges of a table together, in characters.
_EDGES = 2
# The minimum width of a column of `may_shorten`.
_LEAST_NAME = 8


def drawn(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    width: int,
    title: str | None = None,
    may_shorten: Sequence[str] | None = None,
) -> str:
    """Return a table of at most `width` columns, else one line for each cell.

    Only cells in the columns `may_shorten` are cut, with "…". If it is None,
    all columns wrap between words. Columns whose cells are all empty are left
    out.
    """
    kept = []
    for index in range(len(columns)):
        if not rows or any(row[index] not in _NOTHING for row in rows):
            kept.append(index)

    names = [columns[index] for index in kept]
    cells = [[row[index] for index in kept] for row in rows]
    least = []
    natural = []
    for name, column in zip(names, _columns(names, cells), strict=True):
        least.append(_least(name, column, may_shorten))
        natural.append(_natural(name, column))

    for gap in _GAPS:
        room = width - _EDGES - gap * (len(names) - 1)
        # The widest gap is only for a table that need not be wrapped or cut.
        if sum(natural) <= room or (gap < _GAPS[0] and sum(least) <= room):
            widths = _shrunk(natural, least, room)
            if may_shorten is not None:
                cells = [[*map(_shortened, row, widths)] for row in cells]
            return _printed(_as_table(names, cells, widths, gap), title)

    return _printed(_as_lines(names, cells), title)


def _printed(lines: Iterable[str], title: str | None) -> str:
    return "\n".join([title or "", *lines, ""]) + "\n"


def _columns(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[list[str]]:
    return ([row[index] for row in rows] for index in range(len(names)))


def _natural(name: str, cells: Sequence[str]) -> int:
    return max(cell_len(line) for text in (name, *cells) for line in (text.splitlines() or [""]))


def _least(name: str, cells: Sequence[str], may_shorten: Sequence[str] | None) -> int:
    if may_shorten is None:
        return max((cell_len(word) for text in (name, *cells) for word in text.split()), default=0)
    natural = _natural(name, cells)
    if name in may_shorten:
        return min(natural, max(cell_len(name), _LEAST_NAME))
    return natural


def _shrunk(natural: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """Return widths whose sum is at most `room`.

    Until the sum fits, the widest column above its `least` shrinks by one
    character at a time.
    """
    widths = list(natural)
    while sum(widths) > room:
        givers = [index for index in range(len(widths)) if widths[index] > least[index]]
        widths[max(givers, key=lambda index: widths[index])] -= 1
    return widths


def _as_table(
    names: Sequence[str], rows: Sequence[Sequence[str]], widths: Sequence[int], gap: int
) -> Iterator[str]:
    space = " " * gap
    total = sum(widths) + gap * (len(widths) - 1) + _EDGES
    for number, row in enumerate([names, *rows]):
        wrapped = [_wrapped(cell, width) for cell, width in zip(row, widths, strict=True)]
        for lines in itertools.zip_longest(*wrapped, fillvalue=""):
            padded = (set_cell_size(line, width) for line, width in zip(lines, widths, strict=True))
            yield f" {space.join(padded)}".rstrip()
        if number == 0:
            yield f" {'─' * (total - _EDGES)}"


def _wrapped(cell: str, width: int) -> list[str]:
    """Break a cell between words, into lines of at most `width` columns."""
    lines: list[str] = []
    for paragraph in cell.splitlines():
        if cell_len(paragraph) <= width:
            lines.append(paragraph)
            continue

        line = ""
        for word in paragraph.split():
            longer = f"{line} {word}" if line else word
            if line and cell_len(longer) > width:
                lines.append(line)
                longer = word
            line = longer

        lines.append(line)

    return lines or [""]


def _shortened(cell: str, width: int) -> str:
    if cell_len(cell) <= width:
        return cell
    return f"{set_cell_size(cell, width - 1)}…"


def _as_lines(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield one line for each filled cell, with its column's name."""
    widest = max(map(cell_len, names), default=0)
    for number, row in enumerate(rows):
        if number:
            yield ""
        for name, cell in zip(names, row, strict=True):
            if cell not in _NOTHING:
                yield f"{name}{' ' * (widest - cell_len(name))}  {cell}"
