"""A cfg class of Isaac Lab: its sweep, a trial's command, and the values that are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy
import pytest

from tests import isaac_lab
from tests.unit.fake_programs import FakePrograms
from trainyard.errors import RequestError
from trainyard.importing import Options, job_cfg

HEAD = """
import atexit, json, math, pathlib, random
import numpy
import tuner, util
from ray import tune
PICKED = random.choice
OWN = numpy.random.default_rng(5)
SIZES = {"small": [8, 16], "large": [32, 64]}
def half(number): return number // 2
def pick(sizes): return PICKED(sizes)
class WalksJobCfg(tuner.JobCfg):
    def __init__(self, cfg={}):
        cfg = util.populate_isaac_ray_cfg_args(cfg)
        cfg["runner_args"]["--task"] = "Walks-v0"
        h = cfg["hydra_args"]
        r = cfg["runner_args"]
"""
# Loaded here, so that it is not loaded again for each test.
assert numpy.random
# A choice of which one option in four lets a function draw.
KIND = 'h["agent.kind"] = tune.choice(["drawn", "a", "b", "c"])\n'
DRAWS = "lambda c: {} if c['hydra_args']['agent.kind'] == 'drawn' else 8"


def written(tmp_path: Path, body: str, *, after: str = "") -> Path:
    """Write a cfg file below tmp_path/tuning; statements run before and after base's __init__."""
    (tmp_path / "tuning").mkdir(exist_ok=True)
    file = tmp_path / "tuning" / "walks_cfg.py"
    lines = [*body.splitlines(), "super().__init__(cfg)", *after.splitlines()]
    file.write_text(HEAD + "".join(f"        {line}\n" for line in lines))
    return file


def described(file: Path) -> dict[str, Any]:
    with isaac_lab.program() as program:
        found: dict[str, Any] = program.described(
            program.arguments(["space", "--cfg_file", str(file)])
        )
        return found


def trial(file: Path, *words: str) -> list[str]:
    """Return a trial's words behind its task."""
    with isaac_lab.program() as program:
        found: list[str] = program.command_of(
            program.arguments(["run", "--cfg_file", str(file), *words]), program.load(file)
        )
        return found[found.index("Walks-v0") + 1 :]


NESTED = (
    "a choice inside a list, a mapping, another choice or a function's result cannot be "
    "searched: make it the whole "
    "value of a key, or let tune.sample_from make that value"
)
# A value of agent.net, and why it is refused: at import, and on the node.
UNFIT = {
    "[tune.choice([32, 64]), 16]": NESTED,
    "{'kind': 'mlp', 'activation': tune.choice(['elu', 'tanh'])}": NESTED,
    "(tune.uniform(0, 1),)": NESTED,
    "[{'sizes': [tune.randint(1, 9)]}]": NESTED,
    "[{'grid_search': [1, 2]}]": NESTED,
    "tune.choice([tune.loguniform(1e-5, 1e-3), 0.01])": NESTED,
    "tune.grid_search([[8], [tune.randint(1, 9)]])": NESTED,
    "{'grid_search': [{'grid_search': [1, 2]}, 3]}": NESTED,
    "tune.sample_from(lambda c: tune.choice([32, 64]))": NESTED,
    "tune.sample_from(lambda c: [tune.choice([32, 64])])": NESTED,
    "tune.sample_from(lambda c: {'grid_search': [1, 2]})": NESTED,
    "lambda c: 8": "<lambda> is a function; write tune.sample_from(...)",
    "tune.choice([half, 8])": "half is a function; write tune.sample_from(...)",
    "tune.sample_from(lambda c: half)": "half is a function; write tune.sample_from(...)",
    "{'eval': 'spec.config.depth'}": (
        "{'eval': ...} is not read; write tune.sample_from(lambda spec: ...)"
    ),
    "object()": "an object without a text of its own",
    "tune.choice([])": "there is nothing to choose from",
    "{'grid_search': []}": "there is nothing to choose from",
}


@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize(("value", "why"), UNFIT.items())
def test_a_value_unfit_for_training_is_refused_with_its_key(
    value: str, why: str, place: str, tmp_path: Path
) -> None:
    body = f'h["agent.net"] = {value}' if place == "before" else ""
    after = f'self.cfg["hydra_args"]["agent.net"] = {value}' if place == "after" else ""
    file = written(tmp_path, body, after=after)
    for verb in (described, trial):
        with pytest.raises(SystemExit) as caught:
            verb(file)
        assert str(caught.value) == f"isaac_task.py: agent.net: {why}"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('cfg["shared"] = {"depths": [tune.choice([1, 2])]}', f"shared.depths: {NESTED}"),
        ('cfg["shared"] = {"depth": {"eval": "1"}}', "shared.depth: {'eval': ...} is not read"),
        ('h["agent.lr"] = {"grid_search": 0.1}', "grid_search of agent.lr must be a list"),
        ('r["--note"] = "it\'s"', "--note it's: No closing quotation"),
        (
            'h["agent.lr"] = tune.loguniform(1, 8).quantized(2)',
            "tune.loguniform(...).quantized cannot be searched",
        ),
    ],
)
def test_an_unusable_setting_is_refused_with_its_name(
    body: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(SystemExit) as caught:
        described(written(tmp_path, body))
    assert str(caught.value).startswith(f"isaac_task.py: {message}")


def test_sections_that_are_gone_after_the_class_was_made_are_named(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="hydra_args of WalksJobCfg must be a mapping"):
        described(written(tmp_path, "", after='self.cfg["hydra_args"] = ["agent.lr=1"]'))


@pytest.mark.parametrize(
    ("value", "entry"),
    [
        ('{"grid_search": [0.1, 0.01]}', {"grid": [0.1, 0.01]}),
        ("tune.uniform(0.1, 0.5).quantized(0.1)", {"uniform": [0.1, 0.5], "step": 0.1}),
        ("tune.randint(2, 10).quantized(2)", {"randint": [2, 10], "step": 2}),
    ],
)
def test_another_form_of_a_domain_is_a_key_of_the_search(
    value: str, entry: object, tmp_path: Path
) -> None:
    for body, after in (
        (f'h["agent.lr"] = {value}', ""),
        ("", f'self.cfg["hydra_args"]["agent.lr"] = {value}'),
    ):
        assert described(written(tmp_path, body, after=after))["space"] == {"lr": entry}
    assert trial(
        written(tmp_path, 'h["agent.lr"] = {"grid_search": [0.1, 0.01]}'), "--", "lr=0.01"
    ) == ["agent.lr=0.01"]


@pytest.mark.parametrize(
    "function",
    [
        DRAWS.format("random.choice([16, 32])"),
        DRAWS.format("PICKED([16, 32])"),
        DRAWS.format("pick([16, 32])"),
        DRAWS.format("tune.choice([16, 32]).sample()"),
        "lambda c, draw=random.random: 8",
    ],
)
def test_a_function_that_can_reach_chance_has_a_seed_however_rare(
    function: str, tmp_path: Path
) -> None:
    file = written(tmp_path, KIND + f'h["agent.units"] = tune.sample_from({function})')
    assert described(file)["draws"]


def test_without_functions_or_without_chance_there_is_no_seed(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        KIND + 'cfg["paths"] = pathlib.Path("a")\nh["agent.units"] = random.choice([8, 8])',
    )
    assert not described(file)["draws"]
    file = written(
        tmp_path, KIND + 'h["agent.units"] = tune.sample_from(lambda c: half(SIZES["large"][0]))'
    )
    drawing = [
        line
        for line in file.read_text().splitlines()
        if any(word in line for word in ("PICKED", "OWN"))
    ]

    without = [line for line in file.read_text().splitlines() if line not in drawing]
    file.write_text("\n".join(without).replace(", random\n", "\n"))
    assert not described(file)["draws"]


@pytest.mark.parametrize(
    "drawn", ["random.random()", "numpy.random.random()", "int(OWN.integers(10**9))"]
)
def test_each_seed_draws_other_values_and_the_same_seed_the_same(
    drawn: str, tmp_path: Path
) -> None:
    file = written(tmp_path, f'h["agent.units"] = tune.sample_from(lambda c: {drawn})')
    words = [trial(file, "--draw", draw, "--") for draw in ("1", "1", "2")]
    assert words[0] == words[1] != words[2]


@pytest.mark.parametrize(
    ("body", "space", "chosen", "words"),
    [
        (
            'cfg["shared"] = {"depth": tune.choice([1, 2, 3])}\n'
            'h["agent.units"] = tune.sample_from(lambda c: [64] * c["shared"]["depth"])',
            {"depth": {"choice": [1, 2, 3]}},
            "depth=2",
            ["agent.units=[64,64]"],
        ),
        (
            'cfg["depth"] = tune.randint(1, 4)\n'
            'h["agent.units"] = tune.sample_from(lambda spec: [64] * spec.config.depth)',
            {"depth": {"randint": [1, 3]}},
            "depth=3",
            ["agent.units=[64,64,64]"],
        ),
        (
            'cfg["a"] = {"b": {"lr": {"grid_search": [1, 2]}}}\nh["agent.lr"] = tune.choice([3, '
            "4])\n"
            'h["agent.sum"] = tune.sample_from(lambda c: c["a"]["b"]["lr"] + '
            'c["hydra_args"]["agent.lr"])',
            {"lr": {"choice": [3, 4]}, "b_lr": {"grid": [1, 2]}},
            "lr=3 b_lr=2",
            ["agent.lr=3", "agent.sum=5"],
        ),
        (
            'cfg["seed"] = 42\ncfg["singletons"] = ["--headless"]\n'
            'h["agent.seed"] = tune.sample_from(lambda c: c["seed"] + len(c["singletons"]))',
            {},
            "",
            ["agent.seed=43"],
        ),
        (
            'cfg["made"] = {"depth": tune.sample_from(lambda c: 2)}\n'
            'h["agent.depth"] = tune.sample_from(lambda c: c["made"]["depth"])',
            {},
            "",
            ["agent.depth=2"],
        ),
    ],
)
def test_other_sections_feed_functions_and_are_not_in_the_command(
    body: str, space: dict[str, object], chosen: str, words: list[str], tmp_path: Path
) -> None:
    file = written(tmp_path, body)
    found = described(file)
    assert {name: found["space"][name] for name in sorted(found["space"])} == dict(
        sorted(space.items())
    )
    assert ["not in the command, as in Isaac Lab" in note for note in found["notes"]] == [True]
    assert trial(file, "--", *chosen.split()) == words


@pytest.mark.parametrize(
    ("body", "words", "note"),
    [
        (
            'r["--checkpoint"] = "$HOME/best.pth"',
            ["--checkpoint", "/home/ada/best.pth"],
            "variables and ~ are those",
        ),
        (
            'r["--checkpoint"] = "${HOME}/best.pth"',
            ["--checkpoint", "/home/ada/best.pth"],
            "variables and ~ are those",
        ),
        (
            'r["--video_dir"] = "~/videos"',
            ["--video_dir", "/home/ada/videos"],
            "variables and ~ are those",
        ),
        ('h["agent.dir"] = "$HOME/x"', ["agent.dir=/home/ada/x"], "variables and ~ are those"),
        ('h["agent.dir"] = "~/x"', ["agent.dir=~/x"], ""),
        ('h["agent.lr"] = "${agent.rate}"', ["agent.lr=${agent.rate}"], ""),
        ('r["--note"] = "\'$HOME a\'"', ["--note", "$HOME a"], ""),
        ('r["--note"] = "a;b"', ["--note", "a;b"], "no shell reads it here"),
        ('r["--note"] = "\'a;b\'"', ["--note", "a;b"], ""),
        ('h["agent.dir"] = "$(pwd)"', ["agent.dir=$(pwd)"], "no shell reads it here"),
    ],
)
def test_variables_are_the_node_s_and_other_signs_of_a_shell_are_named(
    body: str, words: list[str], note: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    file = written(tmp_path, body)
    assert trial(file) == words
    assert [note in said for said in described(file)["notes"]] == [True] * bool(note)


@pytest.mark.parametrize(
    ("value", "word"),
    [
        # A file of a user's: shlex.quote around a mapping that is a text.
        (
            "shlex.quote('\"{activation_fn:elu,net_arch:[26,82]}\"')",
            "{activation_fn:elu,net_arch:[26,82]}",
        ),
        ("\"'{x:1}'\"", "{x:1}"),
        ("'{x:1}'", "{x:1}"),
        ("'\"relu\"'", "relu"),
        ('["\'q\'", "z"]', "[q,z]"),
        ("[{'kernel': 3}, {'kernel': 5}]", "[{kernel:3},{kernel:5}]"),
        ("'two words'", "two words"),
        ("tune.sample_from(lambda _: 3).sample()", "3"),
        ("tune.sample_from(lambda: 4).sample()", "4"),
    ],
)
def test_a_value_of_hydra_is_what_a_shell_makes_of_it(
    value: str, word: str, tmp_path: Path
) -> None:
    assert trial(written(tmp_path, f'import shlex\nh["agent.a"] = {value}')) == [f"agent.a={word}"]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ('"it\'s"', "No closing quotation"),
        ("\"'{a: 1}'\"", r"a shell makes 2 words of it: agent\.a={a: \| 1}"),
    ],
)
def test_a_value_that_a_shell_tears_is_refused_by_its_key(
    value: str, why: str, tmp_path: Path
) -> None:
    file = written(tmp_path, f'h["agent.a"] = {value}')
    for program in (described, trial):
        with pytest.raises(SystemExit, match=rf"agent\.a .*: {why}"):
            program(file)


def test_a_variable_that_the_node_does_not_have_is_named_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SCRATCH", raising=False)
    file = written(tmp_path, 'h["agent.dir"] = "$SCRATCH/x"')
    assert described(file)["notes"] == [
        "agent.dir $SCRATCH/x: variables and ~ are those of the node."
    ]
    with pytest.raises(SystemExit, match=r"\$SCRATCH of agent\.dir is not set on this node"):
        trial(file)


READ = 'h["agent.lr"] = json.loads({}.read_text())["lr"]\n'


def test_files_near_a_class_travel_with_the_job_and_the_rest_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    home, far = "pathlib.Path(__file__).parent", tmp_path.parent / f"{tmp_path.name}-far.json"
    reads = [
        f'{home}.joinpath("more", "defaults.json")',
        f'{home}.parent.joinpath("above.json")',
        repr(far),
    ]

    reads = [read.replace("PosixPath", "pathlib.Path") for read in reads]
    body = "".join(map(READ.format, [*reads, 'pathlib.Path("here.json")']))
    file = written(tmp_path, f'{body}{home}.joinpath("written.txt").write_text("")')
    (tmp_path / "tuning" / "more").mkdir()
    monkeypatch.chdir(tmp_path)

    for path in (
        tmp_path / "tuning/more/defaults.json",
        tmp_path / "above.json",
        far,
        Path("here.json"),
    ):
        path.write_text('{"lr": 0.1}')

    with isaac_lab.program() as program:
        program.main(["space", "--cfg_file", str(file)])

    found = json.loads(capsys.readouterr().out.strip().removeprefix("isaac_task.py: "))
    assert found["files"] == ["above.json", "tuning/more/defaults.json", "tuning/walks_cfg.py"]
    assert found["notes"] == [
        f"{path} is read by the class, and not copied." for path in sorted([str(far), "here.json"])
    ]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "from ray.tune.search.sample import Categorical",
            "ModuleNotFoundError: No module named 'ray.tune.search'. A cfg",
        ),
        (
            "from ray.tune.schedulers import ASHAScheduler",
            "No module named 'ray.tune.schedulers'. A cfg file is loaded",
        ),
        (
            "from ray.tune import Tuner",
            "cannot import name 'Tuner' from 'ray.tune' (unknown location). A cfg file",
        ),
        (
            "import no_such_module",
            "walks_cfg.py cannot be loaded: ModuleNotFoundError: No module named 'no_such_module'",
        ),
        ("raise ValueError('one\\ntwo')", "walks_cfg.py cannot be loaded: ValueError: one two"),
    ],
)
def test_a_file_that_cannot_be_loaded_is_said_in_one_line(
    body: str, message: str, tmp_path: Path
) -> None:
    with isaac_lab.program() as program, pytest.raises(SystemExit) as caught:
        program.main(["space", "--cfg_file", str(written(tmp_path, body))])
    assert message in str(caught.value)
    assert str(caught.value).startswith("isaac_task.py: walks_cfg.py cannot be loaded: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("code", "tail", "message"),
    [
        (1, ["isaac_task.py: agent.lr: no", "bye"], "agent.lr: no"),
        (0, ["bye"], r"cfg.py cannot be loaded \(exit code 0\): bye"),
        (3, [], r"cfg.py cannot be loaded \(exit code 3\): it printed nothing"),
    ],
)
def test_text_printed_at_exit_does_not_hide_the_error_of_a_file(
    code: int, tail: list[str], message: str, tmp_path: Path, started: FakePrograms
) -> None:
    (tmp_path / "cfg.py").touch()
    started.answer((code, "\n".join(tail)))
    with pytest.raises(RequestError, match=message):
        job_cfg.read(tmp_path / "cfg.py", Options())


def test_text_printed_at_exit_is_not_read_as_the_description(
    tmp_path: Path, started: FakePrograms
) -> None:
    (tmp_path / "cfg.py").touch()
    noted = json.dumps(
        {**isaac_lab.DESCRIBED, "columns": [], "notes": ["seed: not in the command."]}
    )
    started.answer((0, f"hello\nisaac_task.py: {noted}\nbye\n{{}}"))
    found = job_cfg.read(tmp_path / "cfg.py", Options())
    assert (found.name, found.notes[1:]) == ("CartpoleTheiaJobCfg", ("seed: not in the command.",))
