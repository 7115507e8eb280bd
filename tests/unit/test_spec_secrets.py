"""Secrets stay out of records and pages: by the name of what holds them, and by their own form."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainyard.errors import RequestError
from trainyard.spec.load import load_job
from trainyard.spec.secrets import command_without_secrets, hidden, typed_without_secrets
from trainyard.spec.show import as_yaml

# In two halves: what searches repositories for secrets would find whole ones here.
GITHUB = "ghp_" + "a1B2" * 9


@pytest.mark.parametrize(
    "name",
    [
        *(
            "HF_TOKEN",
            "DB_PASS",
            "MYSQL_PWD",
            "GH_PAT",
            "AUTHORIZATION",
            "WANDB_KEY",
            "SLACK_WEBHOOK",
        ),
        *(
            "SENTRY_DSN",
            "SESSION_COOKIE",
            "PGPASSWORD",
            "BASIC_AUTH",
            "SSH_PASSPHRASE",
            "wandb_api_key",
        ),
    ],
)
def test_a_variable_with_such_a_name_is_hidden(name: str) -> None:
    assert hidden({name: "x1"}) == {name: "(hidden)"}


@pytest.mark.parametrize(
    "name",
    [
        "TOKENIZERS_PARALLELISM",
        "PATH",
        "PWD",
        "OLDPWD",
        "AUTHOR",
        "PASSES",
        "COMPASS",
        "KEYS",
        "LR",
    ],
)
def test_a_variable_with_another_name_is_shown(name: str) -> None:
    assert hidden({name: "x1"}) == {name: "x1"}


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("http://bob:PW@mlflow.example:5000/x", "http://(hidden)@mlflow.example:5000/x"),
        ("postgresql://a:b@db/x, redis://:pw@r", "postgresql://(hidden)@db/x, redis://(hidden)@r"),
        (f"x {GITHUB} y", "x (hidden) y"),
        ("ssh://ops@host", "ssh://ops@host"),
        ("http://host:8080/path@v1", "http://host:8080/path@v1"),
    ],
)
def test_a_secret_is_known_by_its_form(value: str, shown: str) -> None:
    assert hidden({"MLFLOW_TRACKING_URI": value}) == {"MLFLOW_TRACKING_URI": shown}


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["--wandb-key", "abcdef", "--lr", "1"], ["--wandb-key", "(hidden)", "--lr", "1"]),
        (["--api-token=abcdef", "x"], ["--api-token=(hidden)", "x"]),
        (["--token", "{seed}", "--key-file", "a"], ["--token", "{seed}", "--key-file", "a"]),
        (["--use-auth", "--verbose"], ["--use-auth", "--verbose"]),
        (["curl", "https://a:b@host/x"], ["curl", "https://(hidden)@host/x"]),
    ],
)
def test_a_command_shows_its_flags_and_not_their_secrets(
    words: list[str], shown: list[str]
) -> None:
    assert command_without_secrets(words) == shown


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("env.API_TOKEN=s3", "env.API_TOKEN=(hidden)"),
        ("--set=env.API_TOKEN=s3", "--set=env.API_TOKEN=(hidden)"),
        ("env={LR: '1', DB_PASS: s3}", "env=(hidden)"),
        ("env={LR: '1'}", "env={LR: '1'}"),
        ("command=[a, --token=abcdef]", "command=(hidden)"),
        ("env.URI=http://a:s3@host", "env.URI=http://(hidden)@host"),
        ("env.LR=1", "env.LR=1"),
    ],
)
def test_a_typed_command_shows_no_secret(word: str, shown: str) -> None:
    assert typed_without_secrets(["trainyard", word]) == ["trainyard", shown]


def test_a_recorded_job_is_asked_for_each_value_that_was_hidden(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(
        "command: [a.py, --api-key, hunter2]\n"
        "env: {DB_PASS: hunter2, URI: 'http://a:hunter2@host'}\n"
        "runtime_env: {pip: ['--index-url=https://a:hunter2@index']}\n"
    )
    recorded = as_yaml(load_job(tmp_path))
    assert "hunter2" not in recorded

    (tmp_path / "job.yaml").write_text(recorded)
    with pytest.raises(RequestError) as caught:
        load_job(tmp_path)
    places = [problem.where.rpartition(": ")[2] for problem in caught.value.problems]
    assert places == ["command.2", "env.DB_PASS", "env.URI", "runtime_env.pip.0"]


def test_an_empty_secret_is_reported_as_empty(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("command: ['true']\n")
    with pytest.raises(RequestError, match=r"--set env.WANDB_API_KEY: must be text, got nothing"):
        load_job(tmp_path, overrides=["env.WANDB_API_KEY="])
