"""Every text that a registry or Docker refused with, as it was seen, and what a user reads instead."""

from __future__ import annotations

import pytest

from trainyard.seams.registry_refusals import REFUSALS, RegistryError, refused

# Go's texts are Docker 20.10's, OpenSSL's are Python's; both as seen against a real registry.
SEEN = (
    (
        "error parsing HTTP 404 response body: invalid character '<' looking for beginning of value",
        "what answers at reg:5000 is not a registry",
    ),
    (
        'Get "https://reg:5000/v2/": x509: certificate has expired or is not yet valid: current time '
        "2026-11-21T15:04:13Z is after 2026-11-20T15:03:05Z",
        "the certificate of registry reg:5000, or of its CA, has expired or is not valid yet",
    ),
    (
        "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: certificate has expired (_ssl.c:1006)",
        "the certificate of registry reg:5000, or of its CA, has expired or is not valid yet",
    ),
    (
        'Get "https://reg:5000/v2/": x509: certificate signed by unknown authority',
        "Docker does not trust the CA of registry reg:5000",
    ),
    (
        "tls: failed to verify certificate: x509: certificate signed by unknown authority",
        "Docker does not trust the CA of registry reg:5000",
    ),
    (
        "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: unable to get local issuer certificate",
        "the certificate of registry reg:5000 is from a CA that is not trusted here",
    ),
    (
        "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate in certificate chain",
        "the certificate of registry reg:5000 is from a CA that is not trusted here",
    ),
    (
        'Get "https://reg:5000/v2/": x509: certificate is valid for 10.9.9.9, not 172.30.0.1',
        "the certificate of registry reg:5000 is for another address",
    ),
    (
        "certificate verify failed: IP address mismatch, certificate is not valid for '172.30.0.1'. (_ssl.c:1006)",
        "the certificate of registry reg:5000 is for another address",
    ),
    (
        'Get "https://reg:5000/v2/": http: server gave HTTP response to HTTPS client',
        "registry reg:5000 speaks plain HTTP, and Docker expects TLS",
    ),
    (
        "[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1006)",
        "registry reg:5000 speaks plain HTTP, and the cluster file expects TLS",
    ),
    (
        "400 Bad Request: Client sent an HTTP request to an HTTPS server.",
        "registry reg:5000 speaks TLS, and the cluster file says `insecure: true`",
    ),
    (
        '500 Internal Server Error: {"errors":[{"code":"UNKNOWN","message":"unknown error","detail":{"DriverName":'
        '"filesystem","Enclosed":{"Op":"write","Path":"/var/lib/registry/startedat","Err":28}}}]}',
        "the disk of registry reg:5000 is full",
    ),
    (
        '500: {"errors":[{"code":"UNKNOWN","detail":"write /var/lib/registry/data: no space left on device"}]}',
        "the disk of registry reg:5000 is full",
    ),
    (
        "write /var/lib/docker/tmp/GetImageBlob123: no space left on device",
        "the disk of the Docker host is full",
    ),
    (
        "filesystem layer verification failed for digest sha256:1111",
        "what registry reg:5000 holds is damaged: it is not what its digest says",
    ),
    (
        "manifest verification failed for digest sha256:1111",
        "what registry reg:5000 holds is damaged: it is not what its digest says",
    ),
    (
        "tag invalid: The image tag 'ray' already exists in the 'mine' repository and cannot be overwritten because "
        "the repository is immutable.",
        "registry reg:5000 does not let a tag lead to another image",
    ),
    ("no basic auth credentials", "registry reg:5000 asks for a login, and none is known"),
    ("unauthorized: authentication required", "registry reg:5000 refuses the login of ray from $SECRET"),
    (
        "denied: requested access to the resource is denied",
        "registry reg:5000 does not allow this login to do that",
    ),
    (
        "pull access denied for mine, repository does not exist or may require 'docker login'",
        "registry reg:5000 has no such image, or not for this login",
    ),
    ("manifest unknown: manifest unknown", "registry reg:5000 does not hold that image"),
    ("dial tcp 127.0.0.1:33200: connect: connection refused", "registry reg:5000 does not answer"),
    ("dial tcp: lookup reg on 10.0.0.1:53: no such host", "registry reg:5000 does not answer"),
    ("[Errno -2] Name or service not known", "registry reg:5000 does not answer"),
    ('Get "https://reg:5000/v2/": EOF', "registry reg:5000 does not answer"),
    (
        "net/http: request canceled while waiting for connection (Client.Timeout exceeded)",
        "registry reg:5000 does not answer",
    ),
    ("received unexpected HTTP status: 500 Internal Server Error", "registry reg:5000 broke while it answered"),
    ("received unexpected HTTP status: 503 Service Unavailable", "registry reg:5000 broke while it answered"),
)


@pytest.mark.parametrize(("text", "what"), SEEN)
def test_a_refusal_becomes_one_clear_error(text: str, what: str) -> None:
    error = refused(text, "reg:5000", doing="push reg:5000/a:1", who=" of ray from $SECRET")
    assert error.what == what
    assert error.where == f"push reg:5000/a:1: {text}"
    assert error.hint
    assert error.exit_code == 6


def test_an_unknown_text_gets_no_invented_cause() -> None:
    error = refused("the moon is\n  in the wrong house", "reg:5000", doing="push reg:5000/a:1")
    assert type(error) is RegistryError
    assert error.lines() == [
        "registry reg:5000 or Docker refused to push reg:5000/a:1",
        "  at the moon is in the wrong house",
    ]
    assert not error.transient


def test_only_what_may_pass_is_tried_again() -> None:
    transient = {refusal.kind.__name__ for refusal in REFUSALS if refusal.kind.transient}
    assert transient == {"GoneError", "BusyError"}
