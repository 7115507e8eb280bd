"""What looks like a secret, and what only seems to. No token here opens anything."""

from __future__ import annotations

import pytest

from trainyard.images.lint import secrets

# In two halves: what searches repositories for secrets would find whole ones here.
KEY = b"-----BEGIN OPENSSH PRIVATE" + b" KEY-----\nb3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQ\n"
GITHUB = b"ghp_" + b"a1B2" * 9
HUGGING_FACE = b"hf_" + b"aB" * 17


@pytest.mark.parametrize(
    ("path", "content", "kind"),
    [
        ("root/.ssh/id_ed25519", KEY, "a private key"),
        ("opt/app/server.pem", b"subject=CN\n" + KEY, "a private key"),
        ("home/ray/.netrc", b"machine api.wandb.ai\n  login user\n  password 0123abcd\n", "a login and password"),
        ("root/.netrc", b"machine x login me password s3cret", "a login and password"),
        ("etc/pip.conf", b"[global]\nindex-url = https://me:s3cret@pypi.example/simple\n", "a login and password"),
        ("root/.docker/config.json", b'{"auths": {"r.io": {"auth": "bWU6cw=="}}}', "a registry's login"),
        ("root/.aws/credentials", b"[default]\naws_secret_access_key = abc\n", "keys of AWS"),
        ("root/.kube/config", b"users:\n- user:\n    token: abc\n", "a login for Kubernetes"),
        ("home/ray/.ray/auth_token", b"0123456789abcdef0123456789abcdef", "Ray's token"),
        ("app/.env", b"WANDB_API_KEY=0123456789abcdef\n", "the value of WANDB_API_KEY"),
        ("app/settings.py", b"TOKEN = '" + GITHUB + b"'\n", "a token of GitHub"),
        ("app/notes.txt", HUGGING_FACE, "a token of Hugging Face"),
        ("app/run.sh", b"export AWS=AKIA" + b"ABCDEFGHIJKLMNOP\n", "a key of AWS"),
    ],
)
def test_a_secret_in_a_file_is_found(path: str, content: bytes, kind: str) -> None:
    assert secrets.wanted(path, len(content))
    assert secrets.secret_in_file(path, content) == kind


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("etc/pip.conf", b"[global]\nindex-url = https://pypi.example/simple\n"),
        ("root/.docker/config.json", b'{"auths": {"r.io": {}}, "credsStore": "desktop"}'),
        ("etc/ssl/certs/ca.pem", b"-----BEGIN CERTIFICATE-----\nMIIDSjCCAjKgAwIBAgIQRK+wgNajJ7qJMDmGLvhAazANBgkq\n"),
        ("app/keys.py", b'HEAD = "-----BEGIN PRIVATE' + b' KEY-----"\n'),
        ("app/docs.md", b"AKIA" + b"IOSFODNN7EXAMPLE"),
        ("app/.env", b"TOKEN_FILE=/run/secrets/token\nAPI_KEY=$API_KEY\nMAX_TOKENS=4096\nDEBUG=true\n"),
        ("home/ray/.bashrc", b"export PATH=/opt/ray/bin:$PATH\n"),
    ],
)
def test_what_is_no_secret_is_not_found(path: str, content: bytes) -> None:
    assert secrets.secret_in_file(path, content) is None


@pytest.mark.parametrize(
    "path",
    [
        "opt/ray/lib/python3.11/site-packages/tornado/test/test.key",
        "usr/share/doc/openssl/key.pem",
        "usr/lib/ssl/misc/key.pem",
        "etc/ssl/private/ssl-cert-snakeoil.key",
        "isaac-sim/exts/omni.x/key.pem",
        "isaac-sim/kit/extscore/omni.y/key.pem",
        "home/ray/anaconda3/pkgs/tornado-6/test.key",
        "opt/miniforge3/pkgs/tornado-6/test.key",
        "usr/src/linux-headers-6.1/certs/key.pem",
    ],
)
def test_what_packages_installed_is_not_read(path: str) -> None:
    assert not secrets.wanted(path, 100)


@pytest.mark.parametrize(
    "path", ["usr/src/app/settings.py", "workspace/exts/mine/settings.py", "app/pkgs/settings.py", "opt/exts/a.toml"]
)
def test_code_of_ones_own_is_read_wherever_it_is(path: str) -> None:
    assert secrets.wanted(path, 100)


def test_large_and_empty_files_are_not_read() -> None:
    assert [secrets.wanted("opt/game.pak", size) for size in (0, 1, 256 * 1024, 256 * 1024 + 1)] == [
        False,
        True,
        True,
        False,
    ]


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("|1 PIP_TOKEN=hunter22 /bin/sh -c pip install x", ["PIP_TOKEN"]),
        ("RUN /bin/sh -c curl --password=hunter22 r.io", ["password"]),
        ('ENV DB_PASSWORD="two words"', ["DB_PASSWORD"]),
        ("RUN pip install -i https://me:s3cret@pypi.example/simple x", ["a login and password in a URL"]),
        ("RUN curl -H 'Authorization: Bearer 0123456789abcdef0123'", ["a bearer token"]),
        ("RUN TOKEN=$(cat /run/secrets/token) make", []),
        ("ENV GPG_KEY=7169605F62C751356D054A26A821E680E5FA6305 PYTHON_SHA256=abc", []),
        ("RUN --mount=type=secret,id=token PASSWORD_FILE=/run/secrets/token make", []),
        ("ARG ACCEPT_EULA=Y", []),
    ],
)
def test_secrets_in_commands_are_found_by_name_and_never_shown(command: str, found: list[str]) -> None:
    assert list(secrets.secrets_in_command(command)) == found


def test_secrets_in_variables_are_found() -> None:
    environ = {
        "PATH": "/bin",
        "HF_TOKEN": HUGGING_FACE.decode(),
        "INDEX": "https://me:s3cret@pypi.example/simple",
        "RAY_AUTH_TOKEN_PATH": "/run/token",
        "TOKENIZERS_PARALLELISM": "false",
        "AUTH_TOKEN": "(hidden)",
    }
    assert list(secrets.secrets_in_environment(environ)) == ["HF_TOKEN", "INDEX (a login and password in a URL)"]


def test_patterns_of_excused_files_are_absolute() -> None:
    assert secrets.is_excused("etc/app/test.key", ("/etc/app/*.key",))
    assert not secrets.is_excused("etc/app/test.key", ("etc/app/*.key", "/etc/other/*"))
