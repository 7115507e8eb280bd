"""What we ask a registry, and how we answer its challenges; the registry is a function."""

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

from trainyard.registry.certificates import make_ca
from trainyard.seams.registry_api import UNKNOWN, RegistryApi
from trainyard.seams.registry_auth import Login, challenge
from trainyard.seams.registry_manifest import Blob, PlatformManifest, digest_of, read_manifest
from trainyard.seams.registry_refusals import DamagedError, FullError, GoneError, LoginError, NoRegistryError
from trainyard.seams.registry_tls import trusting

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

Handler = Callable[[httpx.Request], httpx.Response]


def api(handler: Handler, *, login: Login | None = None, insecure: bool = False) -> RegistryApi:
    return RegistryApi("reg:5000", insecure=insecure, login=login, transport=httpx.MockTransport(handler))


def answering(status: int, content: bytes = b"", **headers: str) -> Handler:
    return lambda request: httpx.Response(
        status, content=content, headers={name.replace("_", "-"): value for name, value in headers.items()}
    )


def test_a_manifest_is_hashed_and_never_taken_by_its_word() -> None:
    found = api(answering(200, MANIFEST, Docker_Content_Digest=digest_of(MANIFEST))).manifest("a/b", "1")
    assert found is not None
    assert (found.digest, found.config, found.layers) == (digest_of(MANIFEST), Blob(CONFIG, 7), (Blob(LAYER, 40),))
    assert found.size == len(MANIFEST) + 47
    with pytest.raises(DamagedError) as caught:
        api(answering(200, MANIFEST, Docker_Content_Digest=LAYER)).manifest("a/b", "1")
    assert caught.value.lines() == [
        "what registry reg:5000 holds is damaged: it is not what its digest says",
        f"  at read the manifest a/b:1: digest mismatch: expected {LAYER}, got {digest_of(MANIFEST)}",
        "  -> Nothing uses it. The registry's disk lost data: remove the damaged part there (its data has it in "
        "docker/registry/v2/blobs/sha256), or all of it (invoke registry.down --purge), then push again.",
    ]


def test_a_manifest_that_was_asked_for_by_digest_must_have_it() -> None:
    with pytest.raises(DamagedError):
        api(answering(200, MANIFEST)).manifest("a/b", LAYER)


def test_a_tag_that_is_not_there_has_no_digest() -> None:
    assert api(answering(404)).digest_of("a/b", "1") is None


def test_an_index_has_platforms_instead_of_layers() -> None:
    index = {"schemaVersion": 2, "manifests": [{"digest": LAYER, "size": 5, "platform": PLATFORM}]}
    found = read_manifest(json.dumps(index).encode(), "application/vnd.oci.image.index.v1+json")
    assert found.platforms == (PlatformManifest(LAYER, 5, "linux/arm64/v8"),)
    assert (found.config, found.layers, found.media_type) == (None, (), "application/vnd.oci.image.index.v1+json")


PLATFORM = {"os": "linux", "architecture": "arm64", "variant": "v8"}


@pytest.mark.parametrize(
    "content", [b"{}", b"[]", b"nonsense", b'{"schemaVersion": 1}', b'{"schemaVersion": 2, "config": {}}']
)
def test_what_is_no_manifest_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"manifest|Expecting value"):
        read_manifest(content, "")


def test_a_blob_has_the_size_that_the_registry_holds() -> None:
    assert api(answering(200, Content_Length="40")).blob_size("a/b", LAYER) == 40
    assert api(answering(404)).blob_size("a/b", LAYER) is None
    assert api(lambda request: httpx.Response(200, stream=httpx.ByteStream(b""))).blob_size("a/b", LAYER) == UNKNOWN


def test_a_ca_of_this_system_is_trusted_as_docker_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ca = make_ca("reg.example.com", now=datetime(2026, 11, 21, tzinfo=timezone.utc)).certificate
    (tmp_path / "system.pem").write_bytes(ca)
    system = tmp_path / "system.pem"
    # Where OpenSSL looks for the system's CAs.
    monkeypatch.setattr(ssl.SSLContext, "set_default_verify_paths", lambda self: self.load_verify_locations(system))
    trusted = str(trusting(None).get_ca_certs())
    assert "Trainyard registry CA, reg.example.com" in trusted
    assert "DigiCert Global Root" in trusted


def test_a_config_with_other_bytes_is_damaged() -> None:
    assert api(answering(200, b"{}")).config("a/b", digest_of(b"{}")) == b"{}"
    with pytest.raises(DamagedError):
        api(answering(200, b"{ }")).config("a/b", digest_of(b"{}"))


def test_lists_are_read_to_their_last_page() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        if "last" in parse_qs(request.url.query.decode()):
            return httpx.Response(200, json={"tags": ["3"]})
        link = {"Link": '</v2/a/b/tags/list?n=500&last=2>; rel="next"'}
        return httpx.Response(200, json={"tags": ["1", "2"]}, headers=link)

    assert api(handler).tags("a/b") == ("1", "2", "3")


def test_an_unknown_repository_has_no_tags() -> None:
    assert api(answering(404)).tags("a/b") == ()
    assert api(lambda request: httpx.Response(200, json={"tags": None})).tags("a/b") == ()


def test_no_login_is_sent_before_it_is_asked_for() -> None:
    seen: list[str | None] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers.get("Authorization"))
        asked = {"WWW-Authenticate": 'Basic realm="x"'}
        return httpx.Response(200) if seen[-1] else httpx.Response(401, headers=asked)

    connection = api(handler, login=SECRET)
    connection.check()
    connection.check()
    basic = "Basic " + base64.b64encode(b"ray:open sesame").decode()
    # Once asked, it is sent with what follows.
    assert seen == [None, basic, basic]


def test_a_token_comes_from_the_realm_that_the_registry_names() -> None:
    seen: list[tuple[str, str | None]] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append((str(request.url), request.headers.get("Authorization")))
        if request.url.host == "tokens":
            return httpx.Response(200, json={"token": "abc"})
        if request.headers.get("Authorization") == "Bearer abc":
            return httpx.Response(200, headers={"Content-Length": "40"})
        asked = 'Bearer realm="https://tokens/give",service="reg",scope="repository:a/b:pull"'
        return httpx.Response(401, headers={"WWW-Authenticate": asked})

    connection = api(handler, login=SECRET)
    assert connection.blob_size("a/b", LAYER) == 40
    assert connection.blob_size("a/b", LAYER) == 40
    blob = f"https://reg:5000/v2/a/b/blobs/{LAYER}"
    basic = "Basic " + base64.b64encode(b"ray:open sesame").decode()
    assert seen == [
        (blob, None),
        ("https://tokens/give?service=reg&scope=repository%3Aa%2Fb%3Apull", basic),
        (blob, "Bearer abc"),
        (blob, "Bearer abc"),
    ]


def test_a_password_is_not_sent_in_the_clear_to_get_a_token_for_a_registry_with_tls() -> None:
    seen: list[str | None] = []

    def handler(request: httpx.Request) -> httpx.Response:
        if request.url.host == "tokens":
            seen.append(request.headers.get("Authorization"))
        return httpx.Response(401, headers={"WWW-Authenticate": 'Bearer realm="http://tokens/give"'})

    with pytest.raises(LoginError):
        api(handler, login=SECRET).check()
    assert seen == [None]


def test_a_blob_store_on_another_host_never_sees_the_login() -> None:
    seen: list[tuple[str, str | None]] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append((request.url.host, request.headers.get("Authorization")))
        if request.url.host == "store":
            return httpx.Response(401, headers={"WWW-Authenticate": "Basic"})
        if not request.headers.get("Authorization"):
            return httpx.Response(401, headers={"WWW-Authenticate": "Basic"})
        return httpx.Response(307, headers={"Location": "https://store/blob"})

    with pytest.raises(LoginError):
        api(handler, login=SECRET).blob_size("a/b", LAYER)
    assert [authorization for host, authorization in seen if host == "store"] == [None]


def test_a_wrong_password_is_told_without_the_password() -> None:
    with pytest.raises(LoginError) as caught:
        api(answering(401, b'{"errors": [{"code": "UNAUTHORIZED"}]}', WWW_Authenticate="Basic"), login=SECRET).check()
    assert caught.value.lines() == [
        "registry reg:5000 refuses the login of ray from $SECRET",
        '  at ask whether a registry is there: 401 Unauthorized: {"errors": [{"code": "UNAUTHORIZED"}]}',
        "  -> Check username and password of `registry:` in the cluster file, or log in again: docker login reg:5000",
    ]
    assert "sesame" not in repr(SECRET)


def test_a_registry_that_is_not_there_is_gone() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("[Errno 111] Connection refused")

    with pytest.raises(GoneError) as caught:
        api(handler).check()
    assert caught.value.what == "registry reg:5000 does not answer"
    assert caught.value.transient


@pytest.mark.parametrize(
    ("status", "said"),
    [(404, "404 Not Found"), (501, "501 Not Implemented"), (200, "200 OK")],
)
def test_a_server_that_is_no_registry_is_told_without_its_page(status: int, said: str) -> None:
    page = b"<!DOCTYPE HTML>\n<html><body>404 or whatever</body></html>"
    with pytest.raises(NoRegistryError) as caught:
        api(answering(status, page)).check()
    assert caught.value.lines() == [
        "what answers at reg:5000 is not a registry",
        f"  at ask whether a registry is there: no registry answers like this: {said}",
        "  -> Is registry.address right, with its port? One of our own is started by: invoke registry.up",
    ]


def test_an_upload_is_tried_and_taken_back() -> None:
    seen: list[str] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(f"{request.method} {request.url.raw_path.decode()}")
        states = {"POST": "/v2/a/b/blobs/uploads/1?state=x", "PATCH": "/v2/a/b/blobs/uploads/1?state=y"}
        if request.method == "DELETE":
            return httpx.Response(204)
        return httpx.Response(202, headers={"Location": states[request.method]})

    api(handler).try_upload("a/b", size=10)
    assert seen == [
        "POST /v2/a/b/blobs/uploads/",
        "PATCH /v2/a/b/blobs/uploads/1?state=x",
        "DELETE /v2/a/b/blobs/uploads/1?state=y",
    ]


def test_an_upload_that_finds_no_room_says_so_and_is_taken_back() -> None:
    seen: list[str] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request.method)
        if request.method == "PATCH":
            return httpx.Response(500, json={"errors": [{"code": "UNKNOWN", "detail": {"Enclosed": {"Err": 28}}}]})
        return httpx.Response(202, headers={"Location": "/v2/a/b/blobs/uploads/1"})

    with pytest.raises(FullError) as caught:
        api(handler).try_upload("a/b")
    assert caught.value.what == "the disk of registry reg:5000 is full"
    assert seen == ["POST", "PATCH", "DELETE"]


def test_a_challenge_is_read_in_any_order() -> None:
    assert challenge('Bearer service="s",realm="https://t/x",scope="a:b:pull,push"') == (
        "bearer",
        {"service": "s", "realm": "https://t/x", "scope": "a:b:pull,push"},
    )
    assert challenge("") == ("", {})


def test_an_engine_gets_the_login_in_its_own_words() -> None:
    assert SECRET.for_engine("reg") == {"username": "ray", "password": "open sesame", "serveraddress": "reg"}
    by_token = Login("config.json", identity_token="stands for both")
    assert by_token.for_engine("reg") == {"identitytoken": "stands for both", "serveraddress": "reg"}
