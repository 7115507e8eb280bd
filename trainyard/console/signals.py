"""How the process ends by Ctrl-C or a closed pipe: before a command runs, and while it does.

Entry points import this before anything else; what takes long there are the other imports.
"""

from __future__ import annotations

import signal
from typing import Any

_PYTHONS_OWN: dict[signal.Signals, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGPIPE: signal.SIG_IGN,
}


def end_quietly() -> None:
    """Let Ctrl-C and a closed pipe (`| head`) end the process, unless a shell ignores them."""
    for number, handler in _PYTHONS_OWN.items():
        if signal.getsignal(number) == handler:
            signal.signal(number, signal.SIG_DFL)


def begin() -> None:
    """From here on Ctrl-C is a KeyboardInterrupt again, and a closed pipe or socket an error."""
    for number, handler in _PYTHONS_OWN.items():
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, handler)
