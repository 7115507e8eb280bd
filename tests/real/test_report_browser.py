"""The report in a real browser: it loads nothing, logs no error, and fits every screen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bed.places import all_must_run
from tests.real import chromium
from tests.real.chromium import Page
from tests.recorded_run import RecordedRun, eventful, smooth, started, sweep
from trainyard.results.report import write_report


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    program = chromium.find()
    missing = f"no chromium on this machine; `{chromium.INSTALL}` brings it"
    if program is None and all_must_run():
        pytest.fail(missing)
    if program is None:
        pytest.skip(missing)
    with chromium.browser(program) as opened:
        yield opened


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(eventful(tmp_path_factory.mktemp("results")).write())


@pytest.mark.core
@pytest.mark.parametrize("width", [1400, 768, 390, 320])
def test_it_loads_nothing_has_no_errors_and_no_screen_is_too_narrow(
    page: Page, report: Path, width: int
) -> None:
    page.open(report, width=width)
    assert page.run("document.documentElement.scrollWidth <= innerWidth")
    assert page.run("document.querySelector('#plot svg').getBoundingClientRect().width") > width / 2
    assert page.requests == [report.as_uri()]
    assert page.errors == []


@pytest.mark.parametrize("dark", [False, True])
def test_light_and_dark_differ(page: Page, report: Path, dark: bool) -> None:
    page.open(report, dark=dark)
    look = (
        "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
    )
    expected = (
        ["rgb(19, 21, 24)", "rgb(228, 231, 234)"]
        if dark
        else ["rgb(247, 247, 245)", "rgb(29, 33, 37)"]
    )
    assert page.run(look) == expected


@pytest.mark.core
def test_the_plot_draws_a_curve_per_task_and_values_under_the_pointer(
    page: Page, report: Path
) -> None:
    page.open(report)
    assert page.run("document.querySelectorAll('#plot path.curve').length") == 4
    assert page.run("document.querySelector('#tag').selectedOptions[0].text") == "eval/mean_return"
    page.run("document.querySelector('#plot').scrollIntoView({block: 'center'})")
    x, y = page.run(
        "(({x, y, width, height}) => [x + width * .9, y + height / 2])($('#plot'))".replace(
            "$", BOX
        )
    )

    page.move(x, y)
    shown = page.run("document.querySelector('.tip').innerText")
    assert "step " in shown
    assert all(f"seed={seed}" in shown for seed in (0, 1, 2, 4))
    inside = (
        "[...document.querySelectorAll('.tip *')].every(one => $(one).right <= "
        "$(one.closest('.tip')).right)"
    )
    assert page.run(inside.replace("$", "(element => element.getBoundingClientRect())"))
    page.move(0, 0)
    assert page.run("document.querySelector('.tip').hidden")


def test_a_click_on_a_name_hides_its_curve_and_scalars_can_be_chosen(
    page: Page, report: Path
) -> None:
    page.open(report)
    page.run("document.querySelector('#legend button').click()")
    assert page.run("document.querySelectorAll('#plot path.curve').length") == 3
    assert (
        page.run("document.querySelector('#legend button').getAttribute('aria-pressed')") == "false"
    )
    page.run("document.querySelector('#none').click()")
    assert page.run("document.querySelectorAll('#plot path.curve').length") == 0
    page.run("document.querySelector('#all').click()")
    before = page.run("document.querySelector('#plot path.curve').getAttribute('d')")
    page.run(
        "(tag => { tag.value = 'rollout/return'; tag.dispatchEvent(new Event('change')); })"
        "(document.querySelector('#tag'))"
    )
    assert page.run("document.querySelector('#plot path.curve').getAttribute('d')") != before
    assert page.errors == []


def test_a_table_is_sorted_by_a_click_on_its_heading(page: Page, report: Path) -> None:
    page.open(report)
    page.run(
        "[...document.querySelectorAll('#tasks thead button')].find(one => one.innerText === "
        "'Time').click()"
    )
    first = (
        "[...document.querySelectorAll('#tasks tbody')].map(one => "
        "one.rows[0].cells[0].firstChild.data.trim())"
    )
    assert page.run(first) == ["seed=5", "seed=4", "seed=3", "seed=0", "seed=2", "seed=1"]
    page.run(
        "[...document.querySelectorAll('#tasks thead button')].find(one => "
        "one.innerText.startsWith('Time')).click()"
    )
    assert page.run(first) == ["seed=1", "seed=2", "seed=0", "seed=3", "seed=4", "seed=5"]


def matrix_run(home: Path) -> RecordedRun:
    """Build a run over the keys lr and seed, in which seeds 0 and 1 of lr=0.1 have equal curves."""
    values = {
        "lr=0.1": ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]),
        "lr=0.01": ([10.0, 100.0, 1000.0], [30.0, 300.0, 3000.0]),
    }
    run = RecordedRun(home, *(f"{lr},seed={seed}" for lr in values for seed in range(2)))
    (run.path / "job.yaml").write_text("matrix:\n  lr: [0.1, 0.01]\n  seed: [0, 1]\n")
    for lr, lines in values.items():
        for seed, line in enumerate(lines):
            run.lines(f"{lr},seed={seed}", score=line, loss=line[::-1])
    return run


def test_curve_points_of_the_resumed_run_are_pale(page: Page, tmp_path: Path) -> None:
    run = RecordedRun(tmp_path, "train", resumes={"run": "cartpole-before", "skipped": []})
    started(run, at=3.5)
    run.lines("train", score=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    page.open(write_report(run.write()))
    points = (
        "[...document.querySelectorAll('#plot path.curve')].map(one => "
        "one.getAttribute('d').split('L').length)"
    )
    # Three points come from the resumed run, whose line ends where this run's line begins.
    assert page.run(points) == [4, 3]
    assert page.run("getComputedStyle(document.querySelector('#plot .before')).opacity") == "0.35"
    said = page.run("document.querySelector('#remarks').innerText")
    assert said == "Pale: written by run cartpole-before, which this run resumes."
    assert page.errors == []


def test_a_mean_over_seeds_has_a_band_and_value_and_spread_on_hover(
    page: Page, tmp_path: Path
) -> None:
    page.open(write_report(matrix_run(tmp_path).write()))
    page.run(CHOOSE.format(id="average-seed", set="checked = true"))
    assert page.run(
        "[...document.querySelectorAll('#legend button')].map(one => one.innerText)"
    ) == [
        "lr=0.1 (2)",
        "lr=0.01 (2)",
    ]

    assert page.run("document.querySelectorAll('#plot .band').length") == 2
    page.run("document.querySelector('#plot').scrollIntoView({block: 'center'})")
    x, y = page.run("(({x, y, width}) => [x + width - 16, y + 15])($('#plot'))".replace("$", BOX))
    page.move(x, y)
    assert "lr=0.01\n2000 ± 1414 (2)" in page.run("document.querySelector('.tip').innerText")
    assert page.errors == []


def test_coinciding_curves_are_drawn_in_turn_and_axes_can_be_log_or_time(
    page: Page, tmp_path: Path
) -> None:
    page.open(write_report(matrix_run(tmp_path).write()))
    dashes = page.run(
        "[...document.querySelectorAll('#plot .curve')].map(one => "
        "one.getAttribute('stroke-dasharray'))"
    )
    assert dashes == ["9 9", "9 9", "", ""]
    said = "The same curve, drawn as alternating dashes: lr=0.1,seed=0, lr=0.1,seed=1."
    assert page.run("document.querySelector('#remarks').innerText") == said
    labels = "[...document.querySelectorAll('#plot text')].map(one => one.textContent)"
    page.run(CHOOSE.format(id="log-y", set="checked = true"))
    assert {"10", "100", "1000"} <= set(page.run(labels))
    page.run(CHOOSE.format(id="across", set="value = 'seconds'"))
    assert {"0 s", "2 s", "since its start"} <= set(page.run(labels))
    page.run(CHOOSE.format(id="across", set="value = 'clock'"))
    assert "wall time" in page.run(labels)


def test_other_scalars_are_small_charts_and_a_click_makes_one_large(
    page: Page, tmp_path: Path
) -> None:
    page.open(write_report(matrix_run(tmp_path).write()))
    assert page.run("[...document.querySelectorAll('.chart')].map(one => one.innerText.trim())")[
        0
    ].startswith("loss")
    page.run("document.querySelector('.chart').click()")
    assert page.run("document.querySelector('#tag').value") == "loss"
    assert page.run("document.querySelector('.chart').innerText").startswith("score")


def test_all_logs_are_searched_and_a_found_line_is_shown_in_its_log(
    page: Page, tmp_path: Path
) -> None:
    run = eventful(tmp_path)
    run.directory.log("seed=0", 1).write_text(
        "".join(f"line {number} of <b>many</b>\n" for number in range(3000))
    )
    page.open(write_report(run.write()))
    page.run(CHOOSE.format(id="search", set="value = 'LINE 88'"))
    assert page.run("document.querySelector('#found').innerText") == "12 lines in 2 logs"
    page.run("[...document.querySelectorAll('#hits button')].at(-1).click()")
    assert page.run("document.querySelector('#log').value") == "logs/seed%3D0.1.log"
    shown = (
        "(lines => [...lines.querySelectorAll('mark')].at(-1).offsetTop - lines.offsetTop - "
        "lines.scrollTop)"
    )
    assert 0 < page.run(f"{shown}(document.querySelector('#lines'))") < 400
    assert page.errors == []


def test_a_watched_page_loads_itself_again_and_keeps_what_the_reader_chose(
    page: Page, tmp_path: Path
) -> None:
    run = matrix_run(tmp_path)
    run.event(0.0, "run-started")
    run.event(
        1.0, "attempt-started", task="lr=0.1,seed=0", attempt=1, node="n", node_id="x", gpus=[]
    )
    run.directory.log("lr=0.1,seed=0", 1).write_text("a line\n" * 500)
    page.open(write_report(run.write(), watched=True), height=600)

    for choice in (
        {"id": "tag", "set": "value = 'loss'"},
        {"id": "log-y", "set": "checked = true"},
        {"id": "average-seed", "set": "checked = true"},
        {"id": "search", "set": "value = 'line'"},
    ):
        page.run(CHOOSE.format(**choice))

    page.run("document.querySelector('#legend button').click()")
    heading = (
        "[...document.querySelectorAll('#tasks thead button')].find(one => one.innerText === 'lr')"
    )
    page.run(f"{heading}.click()")
    page.run("document.querySelector('#tasks th[aria-sort] button').click()")
    page.run("scrollTo(0, 700)")
    chosen = (
        "[...document.querySelectorAll('input[id], select[id]')].map(one => [one.id, "
        "one.value, one.checked])"
    )
    before = page.run(chosen)

    with page.loads():
        write_report(run.path, watched=True)

    assert page.run(chosen) == before
    assert page.run("document.querySelector('#legend button').ariaPressed") == "false"
    assert page.run("document.querySelector('#task-table th[aria-sort]').ariaSort") == "descending"
    assert page.run("scrollY") == 700
    assert "h" in page.run("document.querySelector('[data-began]').innerText")
    write_report(run.path)

    with page.loads():
        page.run("location.reload()")

    assert page.run("document.querySelector('#refresh')") is None
    assert page.errors == []


def test_a_hundred_curves_and_a_run_without_any_are_good_pages(page: Page, tmp_path: Path) -> None:
    many = write_report(smooth(tmp_path / "many", tasks=100).write())
    page.open(many, width=390)
    assert page.run("document.querySelectorAll('#plot path.curve').length") == 100
    assert page.run("document.documentElement.scrollWidth <= innerWidth")
    none = write_report(RecordedRun(tmp_path / "none", "a").write())
    page.open(none, width=390)
    assert page.run("document.documentElement.scrollWidth <= innerWidth")
    assert page.errors == []


def test_trials_are_found_under_the_pointer_and_kept_by_a_range_on_an_axis(
    page: Page, tmp_path: Path
) -> None:
    run = sweep(tmp_path, trials=1000)
    report = write_report(run.write(), watched=True)
    page.open(report, width=390)
    assert page.run("document.documentElement.scrollWidth <= innerWidth")
    page.open(report)
    assert page.run("document.querySelectorAll('#parallel .trial').length") == 1000
    assert page.run("document.querySelectorAll('#legend button[aria-pressed=true]').length") == 10
    page.run("document.querySelector('#parallel').scrollIntoView({block: 'center'})")
    axis = (
        "(number => document.querySelectorAll('#parallel "
        ".axis-line')[number].getBoundingClientRect())"
    )
    x, top = page.run(f"(({{x, top}}) => [x, top])({axis}(4))")
    page.move(x - 30, top + 20)
    assert page.run("document.querySelector('#trial-line').innerText").startswith("Trial ")
    assert page.run("document.querySelectorAll('#parallel .trial.near').length") == 1

    for kind, y in (
        ("mousePressed", top - 2),
        ("mouseMoved", top + 60),
        ("mouseReleased", top + 60),
    ):
        page.call(
            "Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1
        )

    left = "[...document.querySelectorAll('#trial-table tbody')].filter(body => !body.hidden)"
    values = page.run(f"{left}.map(body => Number(body.rows[0].cells[2].dataset.value))")
    assert 0 < len(values) < 1000
    assert min(values) > 250

    with page.loads():
        page.run("location.reload()")

    assert page.run(f"{left}.length") == len(values)
    page.run("document.querySelector('#clear').click()")
    assert page.run(f"{left}.length") == 1000
    assert page.errors == []


CHOOSE = """(one => {{
  one.{set};
  one.dispatchEvent(new Event("input"));
  one.dispatchEvent(new Event("change"));
}})(document.getElementById("{id}"))"""

BOX = "(selector => document.querySelector(selector).getBoundingClientRect())"
