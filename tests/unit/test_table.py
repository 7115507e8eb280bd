"""Tables as they are drawn: what is left out, where cells wrap, what happens where nothing fits."""

from __future__ import annotations

from trainyard.console.table import drawn

NODES = [
    ["head", "ok", "2.0 s", "-", "Ray 2.60.0, Python 3.11.7", ""],
    ["worker-0", "ok", "14.9 s", "-", "Ray 2.60.0, Python 3.11.7", ""],
]
COLUMNS = ["node", "nodes", "task", "gpus", "versions", "reason"]


def lines(text: str) -> list[str]:
    return text.splitlines()[1:-1]


def test_columns_that_say_nothing_in_any_row_are_left_out() -> None:
    assert lines(drawn(COLUMNS, NODES, width=80)) == [
        " node       nodes   task     versions",
        " ─────────────────────────────────────────────────────",
        " head       ok      2.0 s    Ray 2.60.0, Python 3.11.7",
        " worker-0   ok      14.9 s   Ray 2.60.0, Python 3.11.7",
    ]
    assert lines(drawn(["node", "gpus"], [], width=80))[0] == " node   gpus"


def test_on_a_narrow_terminal_cells_wrap_between_words() -> None:
    assert lines(drawn(COLUMNS, NODES, width=46)) == [
        " node      nodes  task    versions",
        " ────────────────────────────────────────────",
        " head      ok     2.0 s   Ray 2.60.0, Python",
        "                          3.11.7",
        " worker-0  ok     14.9 s  Ray 2.60.0, Python",
        "                          3.11.7",
    ]


def test_a_table_too_narrow_for_its_words_shows_one_cell_per_line() -> None:
    assert lines(drawn(COLUMNS, NODES, width=24)) == [
        "node      head",
        "nodes     ok",
        "task      2.0 s",
        "versions  Ray 2.60.0, Python 3.11.7",
        "",
        "node      worker-0",
        "nodes     ok",
        "task      14.9 s",
        "versions  Ray 2.60.0, Python 3.11.7",
    ]


def test_names_that_may_are_shortened_and_their_header_stays_whole() -> None:
    rows = [["walk-20260101-000000-ab12", "a-cluster-of-a-lab", "anna.schmidt"]]
    columns = ["run", "cluster", "user"]
    shown = lines(drawn(columns, rows, width=50, may_shorten=("cluster", "user")))
    assert shown == [
        " run                        cluster    user",
        " ────────────────────────────────────────────────",
        " walk-20260101-000000-ab12  a-cluste…  anna.schm…",
    ]


def test_wide_characters_count_twice_and_a_title_stands_above() -> None:
    shown = drawn(["名前", "b"], [["走る", "1"]], width=80, title="2 complete trials")
    assert shown == "2 complete trials\n 名前   b\n ────────\n 走る   1\n\n"
