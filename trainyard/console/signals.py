"""How Ctrl-C and a closed pipe end the process, before and during a command.

Entry points import this module first, because Ctrl-C may come during the other,
slow imports.
"""

from __future__ import annotations

import signal
from typing import Any

_PYTHONS_OWN: dict[signal.Signals, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGPIPE: signal.SIG_IGN,
}


def end_quietly() -> None:
    """Let Ctrl-C and a closed pipe end the process, without a traceback.

    This changes no signal that the parent process ignores, or that has another
    handler.
    """
    for number, handler in _PYTHONS_OWN.items():
        if signal.getsignal(number) == handler:
            signal.signal(number, signal.SIG_DFL)


def begin() -> None:
    """Undo `end_quietly`: Ctrl-C and a closed pipe raise exceptions again."""
    for number, handler in _PYTHONS_OWN.items():
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, handler)
