"""Ctrl-C: at once while nothing has been started, a question once something has, at once again the second time."""

from __future__ import annotations

import signal

import pytest

from trainyard.dispatch.interrupts import Interrupts


def test_before_anything_was_started_the_first_signal_interrupts() -> None:
    with pytest.raises(KeyboardInterrupt), Interrupts():
        signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_once_held_the_first_signal_asks_and_the_second_interrupts(number: signal.Signals) -> None:
    with Interrupts() as interrupts:
        interrupts.hold()
        assert not interrupts.asked()
        signal.raise_signal(number)
        assert interrupts.asked()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)


def test_afterwards_signals_mean_what_they_meant_before() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Interrupts():
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before
