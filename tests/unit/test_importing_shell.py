"""Expansions of Isaac Lab's shells are done here, too, or named."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest

from trainyard.errors import RequestError
from trainyard.importing import Imported, Options, convert, convert_cluster, shell
from trainyard.spec.load import load_job

TRAIN = "./isaaclab.sh -p scripts/reinforcement_learning/rl_games/train.py --task X"
IN_SHELL = (
    "job-1 trains in a shell: logs/ comes home, and an attempt that failed is not tried again."
)


def of_line(*words: str) -> Imported:
    found = convert(None, words, Options(python="python"))
    assert isinstance(found, Imported)
    return found


def of_file(directory: Path, name: str, text: str) -> Imported:
    (directory / name).write_text(textwrap.dedent(text))
    found = convert(directory / name, (), Options(python="python"))
    assert isinstance(found, Imported)
    return found


def commands(found: Imported) -> list[Any]:
    return [task["command"] for task in found.job["tasks"]]


@pytest.mark.parametrize(
    ("job", "command"),
    [
        ("bash -c 'cd /w && python a.py'", ["bash", "-c", "cd /w && python a.py"]),
        ("python a.py --msg 'x; y'", ["python", "a.py", "--msg", "x; y"]),
        ('python -c "a=1; print(a)"', ["python", "-c", "a=1; print(a)"]),
        ('python a.py --msg "cost \\$5"', ["python", "a.py", "--msg", "cost $5"]),
        ("python a.py --msg 'x; y' > log", ["bash", "-c", "python a.py --msg 'x; y' > log"]),
        (
            "A='b c' python a.py --to \"$HOME/x  y\"",
            ["bash", "-c", "A='b c' python a.py --to \"$HOME/x  y\""],
        ),
        ("cd /w\npython a.py", ["bash", "-c", "cd /w\npython a.py"]),
        ("python a.py \\\n  --x 1\n", ["python", "a.py", "--x", "1"]),
        ("python -c 'import x\nx.y()'", ["python", "-c", "import x\nx.y()"]),
        ("python a.py --in ~/runs", ["bash", "-c", "python a.py --in ~/runs"]),
        ("A=~/runs python a.py", ["bash", "-c", "A=~/runs python a.py"]),
        ("python a.py runs/*/model.pt 'a/*'", ["bash", "-c", "python a.py runs/*/model.pt 'a/*'"]),
        ("python a.py ~key key=[1,*] --a=b.*", ["python", "a.py", "~key", "key=[1,*]", "--a=b.*"]),
        ("python a.py key={a,b}", ["python", "a.py", "key={{a,b}}"]),
        # Upstream's /bin/sh leaves them as they are.
        ("python a.py key={a,b} > log", ["bash", "+B", "-c", "python a.py key={{a,b}} > log"]),
        ("exec python a.py", ["bash", "-c", "exec python a.py"]),
        ("source /opt/env.sh", ["bash", "-c", "source /opt/env.sh"]),
        ("python a.py # twice", ["bash", "-c", "python a.py # twice"]),
        ("A=1", ["bash", "-c", "A=1"]),
    ],
)
def test_a_sub_job_in_quotes_keeps_its_own_and_a_shell_reads_its_signs(
    job: str, command: list[str]
) -> None:
    assert commands(of_line("wrap_resources.py", "--sub_jobs", job)) == [command]


def test_several_sub_jobs_in_one_quotation_keep_their_quotes(tmp_path: Path) -> None:
    jobs = (
        "WANDB_MODE=offline python a.py + bash -c 'cd /w && python b.py' + cd /w\npython c.py "
        "> 'l g' + python d.py"
    )
    found = of_line("submit_job.py", "--aggregate_jobs", "wrap_resources.py", "--sub_jobs", jobs)

    assert commands(found) == [
        ["python", "a.py"],
        ["bash", "-c", "cd /w && python b.py"],
        ["bash", "-c", "cd /w\npython c.py > 'l g'"],
        ["python", "d.py"],
    ]

    assert found.job["tasks"][0]["env"] == {"WANDB_MODE": "offline"}
    found.write(tmp_path / "made")
    load_job(tmp_path / "made")


def test_words_that_were_in_quotes_stay_whole_in_a_shell() -> None:
    words = ["A=x y", "python", "a.py", "--msg", "it's so", "#fff", "{a,b}", "--seed", "$RANDOM"]
    line = "A='x y' python a.py --msg 'it'\"'\"'s so' '#fff' '{{a,b}}' --seed $RANDOM"
    assert commands(of_line("wrap_resources.py", "--sub_jobs", *words)) == [["bash", "-c", line]]


@pytest.mark.parametrize(
    "value", ["cd /w && python a.py", "x; y", "a=1; print(a)", "costs $5", "a > b"]
)
def test_a_value_with_signs_that_isaac_lab_would_cut_shows_both_readings(value: str) -> None:
    with pytest.raises(RequestError, match="job 2 can be read in two ways: bash -c ") as caught:
        of_line("wrap_resources.py", "--sub_jobs", "a.py", "+", "bash", "-c", value)
    assert [problem.message for problem in caught.value.problems] == [
        f"'{value}'",
        f"bash -c {value}",
    ]


def test_an_aggregate_job_in_quotes_is_read_as_a_shell_reads_it() -> None:
    wrapped = "wrap_resources.py --sub_jobs python a.py --t $TASK && echo done"
    found = of_line(
        "submit_job.py", "--aggregate_jobs", f"{wrapped} * train.py --msg 'x; y' * train.py > log"
    )
    assert commands(found) == [
        ["bash", "-c", "python a.py --t $TASK"],
        ["python", "train.py", "--msg", "x; y"],
        ["bash", "-c", "python train.py > log"],
    ]
    assert found.notes[1:] == ("not read: && echo done",)
    with pytest.raises(RequestError, match="a job in quotes cannot be read"):
        of_line("submit_job.py", "--aggregate_jobs", "train.py `date")


@pytest.mark.parametrize(
    ("line", "notes"),
    [
        ("python {} > log.txt 2>&1 &", ["> log.txt 2>&1 &"]),
        ("cd /w && A=1 python3 x/{} && echo done", ["cd /w &&", "&& echo done"]),
        ("./isaaclab.sh -p {} | tee log; date", ["| tee log; date"]),
        ("nohup python {} &> log &", ["nohup python", "&> log &"]),
        ("(cd x; uv run --extra ray python {}) || exit 1", ["(cd x;", ") || exit 1"]),
        (
            "set -e # it's\nfor i in 1 2\ndo python {} 2>log --x < in\ndone",
            ["do python", "2>log < in", "set -e"],
        ),
        ("python \\\n  {}\n)\n", []),
    ],
)
def test_shell_words_around_the_script_are_noted_as_not_read(
    line: str, notes: list[str], tmp_path: Path
) -> None:
    found = of_file(
        tmp_path, "run.sh", line.format("wrap_resources.py --sub_jobs python a.py + python b.py")
    )
    more = ["--x"] if "--x" in line else []
    assert commands(found) == [["python", "a.py"], ["python", "b.py", *more]]
    assert list(found.notes)[: len(notes)] == [f"not read: {note}" for note in notes]
    assert len(found.notes) == len(notes) + 2 * ("for i" in line)


def test_signs_in_quotes_belong_to_the_sub_job_also_in_a_file(tmp_path: Path) -> None:
    text = """\
        python wrap_resources.py --sub_jobs $'cd /w\\npython a.py' + 'python b.py \\
            --x' + "python c.py 2>&1 | tee \\$LOG" + d.py --url http://x/#part >> log
        """
    found = of_file(tmp_path, "run.sh", text)
    assert commands(found) == [
        ["bash", "-c", "cd /w\npython a.py"],
        ["python", "b.py", "--x"],
        ["bash", "-c", "python c.py 2>&1 | tee $LOG"],
        ["d.py", "--url", "http://x/#part"],
    ]
    assert found.notes[1:] == ("not read: >> log",)


def test_a_starter_of_a_script_is_noted_unless_it_is_python() -> None:
    for starter in ("ray job submit -- python", "srun -n 2", "docker exec -it lab python3"):
        assert of_line(*starter.split(), "wrap_resources.py", "--sub_jobs", "a.py").notes == (
            f"not read: {starter}",
        )
    for starter in (
        "/opt/venv/bin/python3.11 -u",
        "WANDB_MODE=offline python -m",
        "uv run --extra ray python",
    ):
        script = "ray.wrap_resources" if starter.endswith("-m") else "wrap_resources.py"
        assert of_line(*starter.split(), script, "--sub_jobs", "a.py").notes == ()


@pytest.mark.parametrize(
    ("job", "outputs", "note"),
    [
        (f"{TRAIN} --seed $RANDOM", ["logs/"], IN_SHELL),
        (f"{TRAIN} > train.log 2>&1", ["logs/"], IN_SHELL),
        (f"bash -c '{TRAIN}; true'", ["logs/"], IN_SHELL),
        (
            f"cd /workspace/isaaclab && {TRAIN}",
            None,
            "job-1 trains in another directory (cd): the logs/ that it",
        ),
        ("python rl_games/train.py.orig $X", None, None),
    ],
)
def test_a_training_in_a_shell_brings_its_logs_home(
    job: str, outputs: list[str] | None, note: str | None
) -> None:
    found = of_line("wrap_resources.py", "--sub_jobs", job)
    assert found.job["tasks"][0].get("outputs") == outputs
    assert [text[: len(note or "")] for text in found.notes] == ([note] if note else [])


def test_notes_of_resources_and_of_a_training_are_both_shown() -> None:
    found = of_line("wrap_resources.py", "--gpu_per_worker", "1", "--sub_jobs", f"{TRAIN} $X")
    assert found.notes[0] == IN_SHELL
    assert found.notes[1].startswith("cpu_per_worker is not given")


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (
            "prep.py --out /data/$USER && python train.py > train.log 2>&1",
            ["bash", "-c", "python prep.py --out /data/$USER && python train.py > train.log 2>&1"],
        ),
        ("eval.py ~/runs/*/model.pt", ["bash", "-c", "python eval.py ~/runs/*/model.pt"]),
        ("eval.py --msg 'a; b' ~key", ["python", "eval.py", "--msg", "a; b", "~key"]),
        ("eval.py\n  --y 1\n", ["python", "eval.py", "--y", "1"]),
        ("eval.py\n  --y $Y\n", ["bash", "-c", "python eval.py --y $Y"]),
    ],
)
def test_signs_of_a_shell_in_py_args_work_as_in_task_runner(
    words: str, command: list[str], tmp_path: Path
) -> None:
    found = of_file(tmp_path, "tasks.yaml", f"tasks: [{{name: a, py_args: {json.dumps(words)}}}]")
    assert commands(found) == [command]


def test_files_that_a_shell_line_of_task_runner_names_travel_with_the_job(tmp_path: Path) -> None:
    for name in ("prep.py", "train.py"):
        (tmp_path / name).write_text("")
    found = of_file(
        tmp_path, "tasks.yaml", "tasks: [{name: a, py_args: 'prep.py; python ./train.py $X'}]"
    )
    assert sorted(found.files) == ["prep.py", "train.py"]


@pytest.mark.parametrize(
    "words", ["sky launch -c mycluster sky.yaml", "sky launch sky.yaml", "launch"]
)
def test_only_launch_py_is_isaac_lab_s(words: str) -> None:
    with pytest.raises(RequestError) as caught:
        convert(None, words.split(), Options())
    assert caught.value.what == "this is no command line of Isaac Lab's Ray scripts"
    with pytest.raises(RequestError) as caught:
        convert_cluster(None, words.split())
    assert caught.value.what == "this is no command line of Isaac Lab's launch.py"


def test_shell_words_around_launch_py_are_noted_as_not_read(tmp_path: Path) -> None:
    (tmp_path / "up.sh").write_text("cd /w && python launch.py --image lab/ray:1 > log &\n")
    assert convert_cluster(tmp_path / "up.sh").notes[-2:] == (
        "not read: cd /w &&",
        "not read: > log &",
    )


@pytest.mark.parametrize("text", ["a 'b", 'a "b', "a `b", "a $'\\x41'"])
def test_a_quotation_that_does_not_end_or_is_not_known_is_refused(
    text: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=r"No closing quotation|is not known here"):
        shell.commands(text)
    with pytest.raises(RequestError, match="cannot be read"):
        of_file(tmp_path, "run.sh", text)
