"""Job files that are YAML, and wrong."""

from tests.bad_input.case import DURATION, job, run

OUTPUT = "must be a path inside the task's directory, without '..' and '\\', got "

JOBS = (
    job(
        "nothing to run",
        "retries: 1\n",
        "train/job.yaml:1: command: is missing: give command, or tasks",
    ),
    job(
        "a text",
        "command: python x.py\n",
        'train/job.yaml:1: command: must be a list, got "python x.py"',
    ),
    job(
        "an empty list",
        "command: []\n",
        "train/job.yaml:1: command: must be a list of a program and its arguments",
    ),
    job(
        "a number in the command, no for together, a name",
        "command: [python, train.py, --seed, 0]\ntogether: no\nname: mine\n",
        "train/job.yaml:3: name: must not be given: a job's name is its directory's name",
        'train/job.yaml:1: command.3: must be text, got 0; write it in quotes: "0"',
        'train/job.yaml:2: together: must be true or false, got "no"',
    ),
    job(
        "a placeholder without quotes",
        "command: [python, train.py, --seed, {seed}]\nmatrix: {seed: [0, 1]}\n",
        'train/job.yaml:1: command.3: must be text, got {"seed": null}; write "{seed}" in quotes',
    ),
    job(
        "an empty list of tasks next to a command",
        'command: [python, train.py, "{seed}"]\nmatrix: {seed: [1, 2]}\ntasks: []\n',
        "train/job.yaml:3: tasks: must not be empty",
    ),
    run(
        "command and tasks",
        "tasks: [{name: a, command: [true.py]}]\n",
        "train/job.yaml:2: tasks: must not be given together with command or matrix",
    ),
    job(
        "placeholders that the matrix has not",
        'command: [python, "{sed}", \'{"lr": 1}\']\nmatrix: {seed: [0, 1]}\n',
        'train/job.yaml:1: command.1: names {sed}, but the matrix has seed, got "{sed}"; did '
        "you mean 'seed'?",
        "train/job.yaml:1: command.2: has a single '{', got \"{\\\"lr\\\": 1}\"; write '{{' for "
        "the character itself",
        "train/job.yaml:1: command.2: has a single '}', got \"{\\\"lr\\\": 1}\"; write '}}' for "
        "the character itself",
    ),
    job(
        "a key of the matrix that nothing names",
        'matrix: {seed: [0, 1], lr: [0.1]}\ncommand: [python, "{seed}"]\n',
        "train/job.yaml:1: matrix.lr: is used nowhere: write {lr} into command or env",
    ),
    job(
        "a placeholder without a matrix",
        'command: [sh, -c, "echo ${HOME}"]\n',
        'train/job.yaml:1: command.2: names {HOME}, but there is no matrix, got "echo ${HOME}"; '
        "write "
        "'{{HOME}}' for the text itself",
    ),
    run(
        "a matrix of nothing",
        "matrix: {seed: []}\n",
        "train/job.yaml:2: matrix.seed: must not be empty",
    ),
    run(
        "a matrix of lists, and a key with a space",
        'matrix: {layers: [[1, 2], 3], "learning rate": [1]}\n',
        "train/job.yaml:2: matrix.layers.0: must be text, a number, true or false, got [1, 2]",
        "train/job.yaml:2: matrix.learning rate: must be letters, digits, '_' and '-', and start "
        "with a "
        'letter, got "learning rate"',
    ),
    run(
        "a matrix of more than 100,000 tasks",
        "matrix:\n" + "".join(f"  {key}: {list(range(50))}\n" for key in "abc"),
        "train/job.yaml:2: matrix: makes 125,000 tasks, and a job has at most 100,000",
    ),
    run(
        "what a task needs",
        "resources: {gpus: 1.5, num_gpus: 1}\nretries: -1\ntimeout: 1:30\nsmoke: {gpu: "
        "true}\nretry: 2\n"
        "node: {name: head, group: gpu}\n",
        "train/job.yaml:2: resources.gpus: must be a fraction below 1 or a whole number, got 1.5",
        "train/job.yaml:2: resources.num_gpus: is not a known key; did you mean 'gpus'?",
        "train/job.yaml:3: retries: must be at least 0, got -1",
        f'train/job.yaml:4: timeout: {DURATION}"1:30"',
        "train/job.yaml:5: smoke.gpu: is not a known key; did you mean 'gpus'?",
        "train/job.yaml:6: retry: is not a known key; did you mean 'retries'?",
        "train/job.yaml:7: node: must have one of: name, group",
    ),
    run(
        "a date in a variable is text, a number is not; a working directory for Ray",
        "env: {DAY: 2024-01-01, YEAR: 2024}\nruntime_env: {working_dir: src}\n",
        'train/job.yaml:2: env.YEAR: must be text, got 2024; write it in quotes: "2024"',
        "train/job.yaml:3: runtime_env.working_dir: is a key of Ray's, not of a job file: "
        "the job directory is sent; name more under `files`",
    ),
    run(
        "variables that are Trainyard's",
        'env: {TRAINYARD_OUTPUT: /tmp, CUDA_VISIBLE_DEVICES: "0"}\n',
        "train/job.yaml:2: env.TRAINYARD_OUTPUT: is set by Trainyard",
        "train/job.yaml:2: env.CUDA_VISIBLE_DEVICES: is set by Trainyard",
    ),
    run(
        "two installers, and outputs elsewhere",
        "runtime_env: {uv: [numpy], pip: [numpy]}\noutputs: [../secrets, /etc, 'runs\\..\\x', "
        "'C:\\runs']\n",
        "train/job.yaml:2: runtime_env: has both uv and pip: Ray accepts one of them",
        f'train/job.yaml:3: outputs.0: {OUTPUT}"../secrets"',
        f'train/job.yaml:3: outputs.1: {OUTPUT}"/etc"',
        f'train/job.yaml:3: outputs.2: {OUTPUT}"runs\\\\..\\\\x"',
        f'train/job.yaml:3: outputs.3: {OUTPUT}"C:\\\\runs"',
    ),
    run(
        "patterns as outputs",
        "outputs: ['*.pt', 'runs/v?/', 'ckpt[0-9]', 'runs/[old]']\n",
        *(
            f"train/job.yaml:2: outputs.{index}: must be a file or directory, and no pattern: "
            f'name the directory that holds the files, got "{pattern}"'
            for index, pattern in enumerate(("*.pt", "runs/v?/", "ckpt[0-9]", "runs/[old]"))
        ),
    ),
    job(
        "tasks without a name, with a slash, with a matrix",
        "tasks:\n  - {command: [a.py]}\n  - {name: a/b, command: [a.py]}\n"
        "  - {name: c, command: [a.py], matrix: {seed: [1]}}\n",
        "train/job.yaml:2: tasks.0.name: is missing",
        "train/job.yaml:3: tasks.1.name: must be letters, digits and any of . _ = , + - without "
        "'..', "
        'start with a letter or digit, at most 100 characters, got "a/b"',
        "train/job.yaml:4: tasks.2.matrix: is not a known key; known: name, command, resources, "
        "node, "
        "env, retries, timeout, outputs",
    ),
    job(
        "two tasks of one name",
        "tasks:\n  - {name: a, command: [a.py]}\n  - {name: a, command: [b.py]}\n",
        'train/job.yaml:3: tasks.1.name: is also the name of tasks.0, got "a"',
    ),
)
