"""YAML that is broken, too much, or more than plain values."""

from tests.bad_input.case import cluster, job, lab

# Seven levels of ten: ten million values, in 300 bytes.
_LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n" for before, name in zip("abcdef", "bcdefg", strict=True)
)

YAML_TEXTS = (
    cluster("an empty cluster file", "", "lab.yaml: is empty"),
    cluster(
        "a cluster file that is a list",
        "- name: lab\n",
        'lab.yaml:1: must be a mapping of keys to values, got [{"name": "lab"}]',
    ),
    lab("a tab for indentation", "head:\n\tcpus: 2\n", "lab.yaml:4: is indented with a tab: use spaces"),
    cluster(
        "a NUL byte",
        b"name: lab\x00\nbackend: local\n",
        "lab.yaml:1: is not a text file: it contains the character U+0000",
    ),
    cluster("Latin-1", "name: lab\nimage: café\n".encode("latin-1"), "lab.yaml:2: is not UTF-8 text"),
    cluster(
        "an escape character",
        b"name: \x1b[31mlab\n",
        "lab.yaml:1: is not a text file: it contains the character U+001B",
    ),
    lab(
        "two documents",
        "---\nname: other\n",
        "lab.yaml:3: is not valid YAML: expected a single document in the stream that begins on line 1, "
        "but found another document",
    ),
    lab(
        "a bracket that is never closed",
        "head: {cpus: 2\n",
        "lab.yaml:4: is not valid YAML: while parsing a flow mapping that begins on line 3, expected ',' "
        "or '}', but got '<stream end>'",
    ),
    cluster(
        "a quote that is never closed",
        'name: "lab\nbackend: local\n',
        "lab.yaml:3: is not valid YAML: while scanning a quoted scalar that begins on line 1, found "
        "unexpected end of stream",
    ),
    cluster(
        "a key without its colon",
        "name lab\nbackend: local\n",
        "lab.yaml:2: is not valid YAML: mapping values are not allowed here",
    ),
    cluster("a billion laughs", _LAUGHS, "lab.yaml:1: holds more than 200,000 values once aliases are followed"),
    lab("an alias to itself", "env: &env {A: *env}\n", "lab.yaml:3: is nested deeper than 32 levels"),
    lab("an alias to nothing", "head: *big\n", "lab.yaml:3: is not valid YAML: found undefined alias 'big'"),
    cluster(
        "brackets a hundred deep",
        "head: " + "[" * 100 + "]" * 100 + "\n",
        "lab.yaml:1: is nested deeper than 32 levels",
    ),
    cluster(
        "!!python/object/apply",
        "name: !!python/object/apply:os.system [id]\nbackend: local\n",
        "lab.yaml:1: name: has the tag !!python/object/apply:os.system: files hold plain values, nothing "
        "that runs or converts",
    ),
    job(
        "a tag of one's own",
        "command: !shell python train.py\n",
        "train/job.yaml:1: command: has the tag !shell: files hold plain values, nothing that runs or converts",
    ),
    lab("a key twice", "head: {cpus: 1}\nhead: {cpus: 2}\n", "lab.yaml:4: head: is given twice, first on line 3"),
    lab(
        "a key that YAML 1.2 reads as true",
        "env: {true: x}\n",
        "lab.yaml:3: env: has a key that is not text: write it in quotes",
    ),
    lab("a list for a key", "env: {? [a] : x}\n", "lab.yaml:3: env: has a key that is not text: write it in quotes"),
    lab("a merge key", "head: {<<: {cpus: 2}}\n", "lab.yaml:3: head.<<: is not a known key; known: cpus, memory, gpus"),
)
