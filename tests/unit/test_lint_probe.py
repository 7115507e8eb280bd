"""What is asked of an image, and what its answers mean."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.lint_facts import HEALTHY
from trainyard.errors import NotReadyError, OutsideError
from trainyard.images import lint
from trainyard.images.lint import probe
from trainyard.images.lint.probe import Ended, Probed
from trainyard.seams.docker.engine import Engine
from trainyard.seams.docker.once import Once

QUESTIONS = ("path:/opt/a b", "import:optuna", "run:schola-train --help")
OUTPUT = """
=== a banner of the entry point ===
trainyard: begin
trainyard: uid 1000
trainyard: bash
trainyard: ray.ended 0 ray, version 2.60.0
trainyard: 0 0
trainyard: 1 1 ModuleNotFoundError: \x1b[31mNo module\x1b[0m named 'optuna'
trainyard: 7 0
trainyard: end
"""


def test_answers_are_read_among_what_the_entry_point_prints() -> None:
    probed = probe.parse(OUTPUT, QUESTIONS)
    assert probed.began
    assert (probed.text("uid"), probed.text("bash"), probed.text("never said")) == ("1000", "", "")
    assert probed.ended("ray.ended") == Ended(0, "ray, version 2.60.0")
    assert probed.answer("path:/opt/a b") == Ended(0, "")
    assert probed.answer("import:optuna") == Ended(1, "ModuleNotFoundError: No module named 'optuna'")
    assert probed.answer("run:schola-train --help") is None


def test_an_output_without_answers_did_not_come_through() -> None:
    probed = probe.parse("usage: train.py [-h]\n", QUESTIONS, refusal="usage")
    assert (probed.began, probed.refusal, probed.facts) == (False, "usage", {})


def probed(monkeypatch: pytest.MonkeyPatch, once: Once) -> Probed:
    monkeypatch.setattr(probe, "run_once", lambda *given, **how: once)
    return probe.ask(Engine("unix:///x.sock", None, {}), HEALTHY.image, ())  # type: ignore[arg-type]


CUT_OFF = "trainyard: begin\ntrainyard: uid 1000\n"


def test_a_probe_that_is_not_through_in_time_is_told_from_one_that_was_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotReadyError, match="was not done after 180 s") as caught:
        probed(monkeypatch, Once(None, CUT_OFF, ""))
    assert caught.value.where == "sha256:1: its last answer was: uid 1000"
    with pytest.raises(OutsideError, match="ended with exit code 137"):
        probed(monkeypatch, Once(137, CUT_OFF, ""))


def test_the_script_fits_into_one_argument() -> None:
    # MAX_ARG_STRLEN of Linux is 128 KiB.
    assert len(probe.script().encode()) < 100_000


def test_what_an_image_printed_is_kept_and_what_is_damaged_found_out_again(tmp_path: Path) -> None:
    cache = tmp_path / "lint" / "1.json"
    probed = probe.parse(OUTPUT, QUESTIONS)
    lint.write_cache(cache, probed)
    assert lint.read_cache(cache) == probed
    for text in ("", "[]", "{}", '{"began": true}'):
        cache.write_text(text)
        assert lint.read_cache(cache) is None
