"""The tokens with which nodes join, in credentials/cluster-tokens.txt.

Each line is `TOKEN`, which is valid once, or `TOKEN|EXPIRY`.
"""

from __future__ import annotations

import time

from standin.places import PERSISTENT_TOKENS, TOKENS


def add(token: str, ttl: int) -> None:
    TOKENS.touch(mode=0o660)
    line = token if ttl == -1 else f"{token}|{round(time.time()) + ttl}"
    TOKENS.write_text(TOKENS.read_text() + line + "\n")


def consume(token: str) -> bool:
    """Say whether a token is valid.

    The question uses up a token without an expiry, whether or not the join succeeds.
    """
    lines = TOKENS.read_text().splitlines() if TOKENS.exists() else []
    lasting = [line.split("|") for line in lines if "|" in line]
    if any(found == token and int(expiry) > time.time() for found, expiry in lasting):
        return True
    if PERSISTENT_TOKENS.exists() and token in PERSISTENT_TOKENS.read_text().split():
        return True
    if token in lines:
        lines.remove(token)
        TOKENS.write_text("".join(f"{line}\n" for line in lines))
        return True
    return False
