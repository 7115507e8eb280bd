"""Questions to an image, and the meaning of its answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import requests

from tests.unit.lint_facts import HEALTHY
from trainyard.errors import NotReadyError, OutsideError
from trainyard.images import lint
from trainyard.images.lint import probe
from trainyard.images.lint.probe import Probed
from trainyard.seams.docker.containers import KILLED
from trainyard.seams.docker.engine import Engine
from trainyard.seams.programs import Ran

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
    probed = Probed(probe.parse(OUTPUT, QUESTIONS))
    assert (probed.text("uid"), probed.text("bash"), probed.text("never said")) == ("1000", "", "")
    assert (probed.failure("ray.ended"), probed.failure("path:/opt/a b")) == ("", "")
    assert probed.failure("import:optuna") == "ModuleNotFoundError: No module named 'optuna'"
    assert probed.failure("run:schola-train --help") == "it printed nothing"


class FakeApi:
    """An engine that has one image: how its containers end, by their entry point.

    A container that ends with KILLED runs until it is killed.
    """

    def __init__(self, ends: Mapping[tuple[str, ...], Ran]) -> None:
        self.ends = ends
        self.containers: dict[str, Ran] = {}

    def create_host_config(self, **_: Any) -> None:
        return None

    def create_container(
        self, image: str, command: list[str], *, name: str, entrypoint: list[str] | None, **_: Any
    ) -> None:
        self.containers[name] = self.ends[tuple(entrypoint or ())]

    def start(self, name: str) -> None:
        assert name in self.containers

    def wait(self, name: str, *, timeout: int) -> dict[str, int]:
        if self.containers[name].code == KILLED:
            raise requests.exceptions.ReadTimeout
        return {"StatusCode": self.containers[name].code}

    def logs(self, name: str, *, stdout: bool, stderr: bool) -> bytes:
        ran = self.containers[name]
        return (ran.stdout * stdout + ran.stderr * stderr).encode()

    def remove_container(self, name: str, **_: Any) -> None:
        del self.containers[name]


def probed(*ends: Ran, entrypoint: tuple[str, ...] | None = None) -> Probed:
    """Return the answers of an image.

    `ends`: how its container ends with its own entry point, and how with a shell instead.
    """
    api = FakeApi(dict(zip([(), probe.SHELL], ends, strict=False)))
    engine = Engine("unix:///x.sock", cast("Any", api), {})
    try:
        return probe.ask(engine, replace(HEALTHY.image, entrypoint=entrypoint), ())
    finally:
        assert api.containers == {}


def test_an_output_without_answers_did_not_come_through() -> None:
    ran = Ran(2, "", "usage: train.py [-h]\n")
    assert probed(ran) == Probed({}, "usage: train.py [-h]")


def test_an_image_is_asked_without_an_entry_point_that_swallows_commands() -> None:
    swallowed = Ran(2, "", "no display\nwhat is trainyard-probe?\n")
    without = Ran(0, "trainyard: begin\ntrainyard: uid 1000\ntrainyard: end\n", "")
    found = probed(swallowed, without, entrypoint=("/start.sh",))
    assert (found.text("uid"), found.swallowed) == ("1000", "no display")


CUT_OFF = "trainyard: begin\ntrainyard: uid 1000\n"


def test_a_probe_past_its_deadline_is_told_from_one_that_was_ended() -> None:
    with pytest.raises(NotReadyError, match="was not done after 180 s") as caught:
        probed(Ran(KILLED, CUT_OFF, ""))
    assert caught.value.where == "sha256:1: its last answer was: uid 1000"
    with pytest.raises(OutsideError, match="ended with exit code 137"):
        probed(Ran(137, CUT_OFF, ""))


def test_the_script_fits_into_one_argument() -> None:
    # MAX_ARG_STRLEN of Linux is 128 KiB.
    assert len(probe.script().encode()) < 100_000


def test_a_probe_result_is_cached_and_a_damaged_cache_is_ignored(tmp_path: Path) -> None:
    cache = tmp_path / "lint" / "1.json"
    probed = Probed(probe.parse(OUTPUT, QUESTIONS))
    lint.write_cache(cache, probed)
    assert lint.read_cache(cache) == probed
    for text in ("", "[]", "{}", '{"began": true}'):
        cache.write_text(text)
        assert lint.read_cache(cache) is None
