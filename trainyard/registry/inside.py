"""What is inside the container of a registry: its configuration and secrets, put there by us, kept nowhere else.

The paths of configuration and data are our own: images differ in theirs (registry:2, registry:3, Debian's).
"""

from __future__ import annotations

import json
import secrets

from trainyard.registry.certificates import KeyPair
from trainyard.seams.docker.containers import NewFile

PORT = 5000
DATA = "/var/lib/registry"
HOME = "/etc/trainyard-registry"
CONFIG = f"{HOME}/config.yml"
HTPASSWD = f"{HOME}/htpasswd"
CA = f"{HOME}/ca.pem"
CERTIFICATE = f"{HOME}/server.pem"
KEY = f"{HOME}/server.key"


def files(*, server: KeyPair | None, ca: bytes | None, htpasswd: bytes | None) -> dict[str, NewFile]:
    """Return the files that a registry starts with; keys and hashes can be read by root only."""
    found = {CONFIG: NewFile(config(tls=server is not None, login=htpasswd is not None), 0o600)}
    if server is not None:
        found[CERTIFICATE] = NewFile(server.certificate)
        found[KEY] = NewFile(server.key, 0o600)
    if ca is not None:
        found[CA] = NewFile(ca)
    if htpasswd is not None:
        found[HTPASSWD] = NewFile(htpasswd, 0o600)
    return found


def config(*, tls: bool, login: bool) -> bytes:
    """Return the registry's configuration (distribution.github.io, "Configuring a registry"); JSON is YAML.

    What a push that broke has left is kept for a day: by default a week, on a disk that it may have filled.
    """
    http: dict[str, object] = {
        "addr": f":{PORT}",
        # Signs the state of uploads that are under way.
        "secret": secrets.token_hex(16),
        "headers": {"X-Content-Type-Options": ["nosniff"]},
    }
    if tls:
        http["tls"] = {"certificate": CERTIFICATE, "key": KEY, "minimumtls": "tls1.2"}
    document: dict[str, object] = {
        "version": "0.1",
        "log": {"level": "info", "fields": {"service": "registry"}},
        # No cache of what is there: it goes on to promise layers that garbage collection has removed.
        "storage": {
            "filesystem": {"rootdirectory": DATA},
            "delete": {"enabled": True},
            "maintenance": {"uploadpurging": {"enabled": True, "age": "24h", "interval": "1h", "dryrun": False}},
        },
        "http": http,
        "health": {"storagedriver": {"enabled": True, "interval": "10s", "threshold": 3}},
    }
    if login:
        document["auth"] = {"htpasswd": {"realm": "trainyard", "path": HTPASSWD}}
    return json.dumps(document, indent=2).encode()
