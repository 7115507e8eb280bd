"""Questions to a registry, and answers to its challenges; the registry is a function."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from urllib.parse import parse_qs

import httpx
import pytest

from trainyard.registry.certificates import make
from trainyard.seams.registry.api import Blob, Manifest, RegistryApi, digest_of, trusting
from trainyard.seams.registry.auth import Login
from trainyard.seams.registry.errors import DamagedError, LoginError, RegistryError

LAYER = "sha256:" + "1" * 64
CONFIG = "sha256:" + "2" * 64
DOCKER_V2 = "application/vnd.docker.distribution.manifest.v2+json"
MANIFEST = json.dumps(
    {
        "schemaVersion": 2,
        "mediaType": DOCKER_V2,
        "config": {"digest": CONFIG, "size": 7},
        "layers": [{"digest": LAYER, "size": 40}],
    }
).encode()
SECRET = Login("$SECRET", "ray", "open sesame")
BASIC = "Basic " + base64.b64encode(b"ray:open sesame").decode()

Handler = Callable[[httpx.Request], httpx.Response]


def api(handler: Handler, *, login: Login | None = None) -> RegistryApi:
    return RegistryApi("reg:5000", login=login, transport=httpx.MockTransport(handler))


def answering(status: int, content: bytes = b"", **headers: str) -> Handler:
    return lambda request: httpx.Response(
        status,
        content=content,
        headers={name.replace("_", "-"): value for name, value in headers.items()},
    )


def test_a_manifest_is_hashed_and_never_taken_by_its_word() -> None:
    manifest = api(answering(200, MANIFEST, Docker_Content_Digest=digest_of(MANIFEST))).manifest(
        "a/b", "1"
    )
    assert manifest == Manifest(
        digest_of(MANIFEST), DOCKER_V2, Blob(CONFIG, 7), (Blob(LAYER, 40),), (), MANIFEST
    )
    with pytest.raises(
        DamagedError, match=f"digest mismatch: expected {LAYER}, got {digest_of(MANIFEST)}"
    ):
        api(answering(200, MANIFEST, Docker_Content_Digest=LAYER)).manifest("a/b", "1")
    with pytest.raises(DamagedError):
        api(answering(200, MANIFEST)).manifest("a/b", LAYER)
    assert api(answering(404)).manifest("a/b", "1") is None


@pytest.mark.parametrize(
    "content", [b"[1]", b"nonsense", b'{"schemaVersion": 1}', b'{"schemaVersion": 2, "config": {}}']
)
def test_a_malformed_manifest_is_refused(content: bytes) -> None:
    with pytest.raises(DamagedError):
        api(answering(200, content)).manifest("a/b", "1")


def test_a_ca_of_this_system_is_trusted_as_docker_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = tmp_path / "system.pem"
    system.write_bytes(
        make("reg.example.com", now=datetime(2026, 11, 21, tzinfo=timezone.utc)).certificate
    )
    # Where OpenSSL looks for the system's CAs.
    monkeypatch.setattr(
        ssl.SSLContext, "set_default_verify_paths", lambda self: self.load_verify_locations(system)
    )
    trusted = trusting(None)
    counted = trusted.cert_store_stats()
    assert counted["x509"] - counted["x509_ca"] == 1
    assert "DigiCert Global Root" in str(trusted.get_ca_certs())


def test_lists_are_read_to_the_last_page_and_are_empty_for_an_unknown_name() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        if "last" in parse_qs(request.url.query.decode()):
            return httpx.Response(200, json={"tags": ["3"]})
        link = {"Link": '</v2/a/b/tags/list?n=500&last=2>; rel="next"'}
        return httpx.Response(200, json={"tags": ["1", "2"]}, headers=link)

    assert api(handler).tags("a/b") == ("1", "2", "3")
    assert (
        api(answering(404)).tags("a/b") == api(answering(200, b'{"tags": null}')).tags("a/b") == ()
    )
    with pytest.raises(RegistryError, match="is not a registry"):
        api(answering(200, b"[]")).tags("a/b")


def requested(handler: Handler) -> list[tuple[str, str | None]]:
    """Return the address and the login of every request for a manifest, made twice with a login."""
    requests: list[tuple[str, str | None]] = []

    def noting(request: httpx.Request) -> httpx.Response:
        requests.append((str(request.url), request.headers.get("Authorization")))
        return handler(request)

    with api(noting, login=SECRET) as registry:
        for _ in range(2):
            try:
                registry.manifest("a/b", "1")
            except LoginError:
                break
    return requests


URL = "https://reg:5000/v2/a/b/manifests/1"


def test_a_login_is_sent_once_it_is_asked_for_and_with_all_that_follows() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        challenged = {"WWW-Authenticate": 'Basic realm="x"'}
        return (
            httpx.Response(404)
            if "Authorization" in request.headers
            else httpx.Response(401, headers=challenged)
        )

    assert requested(handler) == [(URL, None), (URL, BASIC), (URL, BASIC)]


def test_a_token_comes_from_the_realm_that_the_registry_names() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        if request.url.host == "tokens":
            return httpx.Response(200, json={"token": "abc"})
        if request.headers.get("Authorization") == "Bearer abc":
            return httpx.Response(404)
        challenged = 'Bearer realm="https://tokens/give",service="reg",scope="repository:a/b:pull"'
        return httpx.Response(401, headers={"WWW-Authenticate": challenged})

    assert requested(handler) == [
        (URL, None),
        ("https://tokens/give?service=reg&scope=repository%3Aa%2Fb%3Apull", BASIC),
        (URL, "Bearer abc"),
        (URL, "Bearer abc"),
    ]


def test_a_password_is_not_sent_in_the_clear_for_a_token_of_a_tls_registry() -> None:
    handler = answering(401, WWW_Authenticate='Bearer realm="http://tokens/give"')
    assert requested(handler) == [(URL, None), ("http://tokens/give", None)]


def test_a_blob_store_on_another_host_never_sees_the_login() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        if request.url.host == "store" or "Authorization" not in request.headers:
            return httpx.Response(401, headers={"WWW-Authenticate": "Basic"})
        return httpx.Response(307, headers={"Location": "https://store/blob"})

    assert [login for url, login in requested(handler) if url == "https://store/blob"] == [None]


def test_a_wrong_password_is_told_without_the_password() -> None:
    with pytest.raises(LoginError, match=r"refuses the login of ray from \$SECRET") as caught:
        api(
            answering(401, b'{"errors": [{"code": "UNAUTHORIZED"}]}', WWW_Authenticate="Basic"),
            login=SECRET,
        ).check()
    assert "sesame" not in f"{caught.value} {SECRET!r}"


def test_a_server_that_is_no_registry_is_told_without_its_page() -> None:
    with pytest.raises(RegistryError, match="is not a registry") as caught:
        api(answering(404, b"<!DOCTYPE HTML>\n<html><body>404 or whatever</body></html>")).check()
    assert (
        caught.value.where
        == "ask whether a registry is there: no registry answers like this: 404 Not Found"
    )


def test_an_engine_gets_the_login_in_its_own_words() -> None:
    assert SECRET.for_engine("reg") == {
        "username": "ray",
        "password": "open sesame",
        "serveraddress": "reg",
    }
    by_token = Login("config.json", identity_token="stands for both")
    assert by_token.for_engine("reg") == {
        "identitytoken": "stands for both",
        "serveraddress": "reg",
    }
