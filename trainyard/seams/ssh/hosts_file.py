"""Trainyard's block of lines in a host's /etc/hosts, between two markers."""

from __future__ import annotations

import re

from trainyard.seams.ssh.hosts import Host

PATH = "/etc/hosts"
_BEGIN = "# trainyard: begin"
_END = "# trainyard: end"
# The file is written in place, because /etc/hosts may be a mount. `$a\` adds a missing last line
# end.
_WRITE = rf"""sed -e '/^{_BEGIN}$/,/^{_END}$/d' -e '$a\' /etc/hosts > /run/trainyard-hosts
cat >> /run/trainyard-hosts
cat /run/trainyard-hosts > /etc/hosts
rm /run/trainyard-hosts"""


def lines_of(text: str) -> str:
    match = re.search(rf"^{_BEGIN}$\n(.*?)^{_END}$", text, re.MULTILINE | re.DOTALL)
    return match[1] if match else ""


def block(lines: str) -> str:
    return f"{_BEGIN}\n{lines}{_END}\n" if lines else ""


def write(host: Host, lines: str) -> None:
    """Replace Trainyard's lines in the host's /etc/hosts; "" removes them."""
    host.root("sh", "-euc", _WRITE, stdin=block(lines).encode())
