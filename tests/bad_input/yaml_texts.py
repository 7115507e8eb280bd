"""YAML that is broken, too much, or more than plain values."""

from tests.bad_input.case import cluster, job, lab

# Seven levels of ten: ten million values, in 300 bytes.
_LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n" for before, name in zip("abcdef", "bcdefg", strict=True)
)

YAML_TEXTS = (
    cluster(
        "an empty cluster file",
        "",
        "lab.yaml: is empty",
    ),
    cluster(
        "a cluster file of comments",
        "# nothing here\n\n",
        "lab.yaml: is empty",
    ),
    cluster(
        "a cluster file of one null",
        "---\n...\n",
        "lab.yaml: is empty",
    ),
    cluster(
        "a cluster file that is a list",
        "- name: lab\n",
        'lab.yaml:1: must be a mapping of keys to values, got [{"name": "lab"}]',
    ),
    cluster(
        "a cluster file that is one word",
        "lab\n",
        'lab.yaml:1: must be a mapping of keys to values, got "lab"',
    ),
    job(
        "a job file that is a list of arguments",
        "[python, train.py]\n",
        'train/job.yaml:1: must be a mapping of keys to values, got ["python", "train.py"]',
    ),
    lab(
        "a tab for indentation",
        "head:\n\tcpus: 2\n",
        "lab.yaml:4: is indented with a tab: use spaces",
    ),
    cluster(
        "a NUL byte",
        b"name: lab\x00\nbackend: local\n",
        "lab.yaml:1: is not a text file: it contains the character U+0000",
    ),
    cluster(
        "an executable",
        b"\x7fELF\x02\x01\x01\x00",
        "lab.yaml:1: is not a text file: it contains the character U+007F",
    ),
    cluster(
        "Latin-1",
        "name: lab\nimage: café\n".encode("latin-1"),
        "lab.yaml:2: is not UTF-8 text: it contains the byte 0xE9",
    ),
    cluster(
        "UTF-16",
        "name: lab\n".encode("utf-16"),
        "lab.yaml:1: is not UTF-8 text: it contains the byte 0xFF",
    ),
    cluster(
        "an escape character",
        b"name: \x1b[31mlab\n",
        "lab.yaml:1: is not a text file: it contains the character U+001B",
    ),
    lab(
        "two documents",
        "---\nname: other\n",
        "lab.yaml:3: starts a second document ('---'): one file holds one",
    ),
    lab(
        "a bracket that is never closed",
        "head: {cpus: 2\n",
        "lab.yaml:4: is not valid YAML: expected ',' or '}', but got the end of the file while parsing a "
        "flow mapping that begins on line 3",
    ),
    cluster(
        "a quote that is never closed",
        'name: "lab\nbackend: local\n',
        "lab.yaml:3: is not valid YAML: there is no closing quote while scanning a quoted scalar that begins on line 1",
    ),
    cluster(
        "a key without its colon",
        "name lab\nbackend: local\n",
        "lab.yaml:2: is not valid YAML: a ':' where no key can stand (see the indentation, and the line before)",
    ),
    cluster(
        "two colons on a line",
        "name: lab: two\n",
        "lab.yaml:1: is not valid YAML: a ':' where no key can stand (see the indentation, and the line before)",
    ),
    cluster(
        "wrong indentation",
        "name: lab\n  backend: local\n",
        "lab.yaml:2: is not valid YAML: a ':' where no key can stand (see the indentation, and the line before)",
    ),
    cluster(
        "a percent sign first",
        "%name: lab\n",
        "lab.yaml:1: is not valid YAML: expected alphabetic or numeric character, but found ':' while "
        "scanning a directive that begins on line 1",
    ),
    cluster(
        "a billion laughs",
        _LAUGHS,
        "lab.yaml:6: holds more than 1,000,000 values once aliases are followed",
    ),
    lab(
        "an alias to itself",
        "env: &env {A: *env}\n",
        "lab.yaml:3: env.A: refers to *env, which is not defined before this line",
    ),
    lab(
        "an alias to nothing",
        "head: *big\n",
        "lab.yaml:3: head: refers to *big, which is not defined before this line",
    ),
    cluster(
        "brackets a hundred deep",
        "head: " + "[" * 100 + "]" * 100 + "\n",
        "lab.yaml:1: is nested deeper than 32 levels",
    ),
    cluster(
        "mappings forty deep",
        "".join(" " * depth + "a:\n" for depth in range(40)),
        "lab.yaml:34: is nested deeper than 32 levels",
    ),
    cluster(
        "!!python/object/apply",
        "name: !!python/object/apply:os.system [id]\nbackend: local\n",
        "lab.yaml:1: name: has the tag !!python/object/apply:os.system: files hold plain values, nothing "
        "that runs or converts",
    ),
    lab(
        "!!python/name",
        "env: {A: !!python/name:os.system }\n",
        "lab.yaml:3: env.A: has the tag !!python/name:os.system: files hold plain values, nothing that "
        "runs or converts",
    ),
    lab(
        "!!binary",
        "env: {A: !!binary aGk=}\n",
        "lab.yaml:3: env.A: has the tag !!binary: files hold plain values, nothing that runs or converts",
    ),
    job(
        "a tag of one's own",
        "command: !shell python train.py\n",
        "train/job.yaml:1: command: has the tag !shell: files hold plain values, nothing that runs or converts",
    ),
    lab(
        "!!int on text",
        'head: {cpus: !!int "2"}\n',
        "lab.yaml:3: head.cpus: has the tag !!int: files hold plain values, nothing that runs or converts",
    ),
    lab(
        "a key twice",
        "head: {cpus: 1}\nhead: {cpus: 2}\n",
        "lab.yaml:4: head: is given twice, first on line 3",
    ),
    lab(
        "a key twice in a mapping on one line",
        "workers: [{name: a, cpus: 1, cpus: 2}]\n",
        "lab.yaml:3: workers.0.cpus: is given twice, first on line 3",
    ),
    lab(
        "a key that YAML 1.2 reads as true",
        "env: {true: x}\n",
        "lab.yaml:3: env: has the key true: keys are text, so write it in quotes",
    ),
    lab(
        "a number for a key",
        "env: {1: x}\n",
        "lab.yaml:3: env: has the key 1: keys are text, so write it in quotes",
    ),
    lab(
        "a list for a key",
        "env: {? [a] : x}\n",
        "lab.yaml:3: env: has a key that is not text",
    ),
    lab(
        "a merge key",
        "head: {<<: {cpus: 2}}\n",
        "lab.yaml:3: head.<<: is not a known key; known: cpus, memory, gpus",
    ),
)
