"""The token in a Secret, ours or one that KubeRay made for a cluster of somebody else."""

from __future__ import annotations

import base64
import binascii

from trainyard.seams.kube.types import Object

# What KubeRay calls the key of a token (ray-operator/controllers/ray/utils/constant.go).
TOKEN_KEY = "auth_token"  # noqa: S105 (a key's name)


def token(secret: Object) -> str | None:
    """Return the token that a Secret holds, None if it holds none."""
    written = (secret.get("data") or {}).get(TOKEN_KEY) or ""
    try:
        return base64.b64decode(written).decode().strip() or None
    except (binascii.Error, UnicodeDecodeError):
        return None
