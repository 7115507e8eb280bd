"""Texts in variables, labels and commands that look like secrets, and some that only seem to.

No token here opens anything.
"""

from __future__ import annotations

import pytest

from trainyard.images.lint import secrets

# In two halves: what searches repositories for secrets would find whole ones here.
KEY = "-----BEGIN OPENSSH PRIVATE" + " KEY-----\\nb3BlbnNzaC1rZXktdjEAAAAA"
GITHUB = "ghp_" + "a1B2" * 9
HUGGING_FACE = "hf_" + "aB" * 17


@pytest.mark.parametrize(
    ("command", "secret_names"),
    [
        ("|1 PIP_TOKEN=hunter22 /bin/sh -c pip install x", ["PIP_TOKEN"]),
        ("RUN /bin/sh -c curl --password=hunter22 r.io", ["password"]),
        ('ENV DB_PASSWORD="two words"', ["DB_PASSWORD"]),
        (
            "RUN pip install -i https://me:s3cret@pypi.example/simple x",
            ["a login and password in a URL"],
        ),
        ("RUN curl -H 'Authorization: Bearer 0123456789abcdef0123'", ["a bearer token"]),
        (f"RUN git clone x && echo {GITHUB}", ["a token of GitHub"]),
        (f"RUN echo '{KEY}' > /root/.ssh/id_ed25519", ["a private key"]),
        ("RUN aws configure set x AKIA" + "ABCDEFGHIJKLMNOP", ["a key of AWS"]),
        ("RUN echo AKIA" + "IOSFODNN7EXAMPLE", []),
        ("RUN TOKEN=$(cat /run/secrets/token) make", []),
        ("ENV GPG_KEY=7169605F62C751356D054A26A821E680E5FA6305 PYTHON_SHA256=abc", []),
        ("RUN --mount=type=secret,id=token PASSWORD_FILE=/run/secrets/token make", []),
        ("ARG ACCEPT_EULA=Y", []),
    ],
)
def test_secrets_in_commands_are_found_by_name_and_never_shown(
    command: str, secret_names: list[str]
) -> None:
    assert list(secrets.secrets_in_command(command)) == secret_names


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (
            "RUN |1 PIP_TOKEN=hunter22 /bin/sh -c pip install x # buildkit",
            "RUN |1 PIP_TOKEN=(hidden) /bin/sh -c pip install x",
        ),
        ("/bin/sh -c #(nop)  ENV DB_PASSWORD=hunter22", "ENV DB_PASSWORD=(hidden)"),
        (
            "RUN pip install -i https://me:s3cret@pypi.example/simple x",
            "RUN pip install -i https://(hidden)@pypi.example/simple x",
        ),
        (
            "RUN curl -u me:s3cret x --password hunter22 y",
            "RUN curl -u me:(hidden) x --password (hidden) y",
        ),
        (f"RUN echo '{KEY}' > /root/.ssh/id_ed25519", "RUN echo '(hidden)"),
        (f"RUN {'x' * 100}", f"RUN {'x' * 76}..."),
    ],
)
def test_an_instruction_is_shown_without_its_secrets(command: str, shown: str) -> None:
    assert secrets.masked(command) == shown


def test_secrets_in_variables_are_found() -> None:
    environ = {
        "PATH": "/bin",
        "HF_TOKEN": HUGGING_FACE,
        "INDEX": "https://me:s3cret@pypi.example/simple",
        "RAY_AUTH_TOKEN_PATH": "/run/token",
        "TOKENIZERS_PARALLELISM": "false",
        "AUTH_TOKEN": "(hidden)",
    }
    assert list(secrets.secrets_in_environment(environ)) == [
        "HF_TOKEN",
        "INDEX (a login and password in a URL)",
    ]
