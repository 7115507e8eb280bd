"""Refusals of a registry, Docker or a kubelet, word for word, and the errors that a user reads."""

from __future__ import annotations

import pytest

from trainyard.seams.registry.errors import RegistryError, refused

EXPIRED = "the certificate of registry reg:5000, or of its CA, has expired or is not valid yet"
UNTRUSTED = "Docker does not trust the CA of registry reg:5000"
CERTIFICATE = "the certificate of registry reg:5000 is not accepted"
PLAIN = "registry reg:5000 speaks plain HTTP, and TLS is expected"
FULL = "the disk of registry reg:5000 is full"
DAMAGED = "the content of registry reg:5000 is damaged: it does not match its digest"
GONE = "registry reg:5000 does not answer"
BROKEN = "registry reg:5000 broke while it answered"

# Go's texts are Docker 20.10's and containerd 1.6's, OpenSSL's are Python's; all as heard from a
# real registry.
HEARD = (
    (
        "error parsing HTTP 404 response body: invalid character '<'",
        "the server at reg:5000 is not a registry",
    ),
    (
        (
            "x509: certificate has expired or is not yet valid: current time 2026-11-21T15:04:13Z is "
            "after"
        ),
        EXPIRED,
    ),
    (
        (
            "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: certificate has expired "
            "(_ssl.c:1006)"
        ),
        EXPIRED,
    ),
    ("tls: failed to verify certificate: x509: certificate signed by unknown authority", UNTRUSTED),
    (
        (
            "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: unable to get local issuer "
            "certificate"
        ),
        CERTIFICATE,
    ),
    ("x509: certificate is valid for 10.9.9.9, not 172.30.0.1", CERTIFICATE),
    (
        (
            "[SSL: CERTIFICATE_VERIFY_FAILED] IP address mismatch, certificate is not valid for "
            "'172.30.0.1'."
        ),
        CERTIFICATE,
    ),
    (
        "http: server gave HTTP response to HTTPS client",
        "registry reg:5000 speaks plain HTTP, and Docker expects TLS",
    ),
    ("[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1006)", PLAIN),
    (
        (
            "500: "
            '{"errors":[{"code":"UNKNOWN","detail":{"Enclosed":{"Op":"write","Path":"/var","Err":28}}}]}'
        ),
        FULL,
    ),
    (
        (
            '500: {"errors":[{"code":"UNKNOWN","detail":"write /var/lib/registry: no space left on '
            'device"}]}'
        ),
        FULL,
    ),
    (
        "write /var/lib/docker/tmp/GetImageBlob123: no space left on device",
        "the disk of the Docker host is full",
    ),
    ("filesystem layer verification failed for digest sha256:1111", DAMAGED),
    (
        "no match for platform in manifest: not found",
        "the image is for another CPU architecture than the host's",
    ),
    (
        (
            "tag invalid: The tag already exists and cannot be overwritten because the repository is "
            "immutable."
        ),
        "registry reg:5000 does not let a tag lead to another image",
    ),
    ("no basic auth credentials", "registry reg:5000 asks for a login, and none is known"),
    (
        "unauthorized: authentication required",
        "registry reg:5000 refuses the login of ray from $SECRET",
    ),
    (
        "denied: requested access to the resource is denied",
        "registry reg:5000 does not allow this login to do that",
    ),
    (
        "pull access denied for mine, repository does not exist or may require 'docker login'",
        "registry reg:5000 has no such image, or not for this login",
    ),
    ("manifest unknown: manifest unknown", "registry reg:5000 does not hold that image"),
    (
        "failed to resolve reference: reg:5000/mine:1: not found",
        "registry reg:5000 does not hold that image",
    ),
    ("dial tcp 127.0.0.1:33200: connect: connection refused", GONE),
    ("[Errno -2] Name or service not known", GONE),
    ("net/http: request canceled while waiting for connection (Client.Timeout exceeded)", GONE),
    ("received unexpected HTTP status: 500 Internal Server Error", BROKEN),
)


@pytest.mark.parametrize(("text", "what"), HEARD)
def test_a_refusal_becomes_one_clear_error(text: str, what: str) -> None:
    error = refused(text, "reg:5000", doing="push reg:5000/a:1", who=" of ray from $SECRET")
    assert (error.what, error.where, error.exit_code) == (what, f"push reg:5000/a:1: {text}", 6)
    assert error.hint


def test_an_unknown_text_gets_no_invented_cause() -> None:
    error = refused("the moon is\n  in the wrong house", "reg:5000", doing="push reg:5000/a:1")
    assert type(error) is RegistryError
    assert error.lines() == [
        "registry reg:5000 or Docker refused to push reg:5000/a:1",
        "  at the moon is in the wrong house",
    ]
