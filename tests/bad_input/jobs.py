"""Job files that are YAML, and wrong: commands, matrices, resources."""

from tests.bad_input.case import job, run

JOBS = (
    job("nothing to run", "retries: 1\n", "train/job.yaml:1: command: is missing: give command, or tasks"),
    job(
        "a command as one text",
        "command: python train.py\n",
        'train/job.yaml:1: command: must be a list, got "python train.py"',
    ),
    job(
        "an empty command", "command: []\n", "train/job.yaml:1: command: must be a list of a program and its arguments"
    ),
    job(
        "a number in the command",
        "command: [python, train.py, --seed, 0]\n",
        'train/job.yaml:1: command.3: must be text, got 0; write it in quotes: "0"',
    ),
    run(
        "command and tasks",
        "tasks: [{name: a, command: [true.py]}]\n",
        "train/job.yaml:2: tasks: must not be given together with command or matrix",
    ),
    job(
        "a placeholder that the matrix has not",
        'command: [python, "{sed}"]\nmatrix: {seed: [0, 1]}\n',
        "train/job.yaml:1: command.1: names {sed}, but the matrix has seed, got \"{sed}\"; did you mean 'seed'?",
    ),
    job(
        "a key of the matrix that nothing names",
        'matrix: {seed: [0, 1], lr: [0.1]}\ncommand: [python, "{seed}"]\n',
        "train/job.yaml:1: matrix.lr: is used nowhere: write {lr} into command or env",
    ),
    job(
        "a placeholder without a matrix",
        'command: [sh, -c, "echo ${HOME}"]\n',
        'train/job.yaml:1: command.2: names {HOME}, but there is no matrix, got "echo ${HOME}"; write '
        "'{{HOME}}' for the text itself",
    ),
    job(
        "a brace on its own",
        "command: [python, '{\"lr\": 1}']\n",
        "train/job.yaml:1: command.1: has a single '{', got \"{\\\"lr\\\": 1}\"; write '{{' for the character itself",
        "train/job.yaml:1: command.1: has a single '}', got \"{\\\"lr\\\": 1}\"; write '}}' for the character itself",
    ),
    run(
        "a matrix that is a list",
        "matrix: [0, 1]\n",
        "train/job.yaml:2: matrix: must be a mapping of keys to values, got [0, 1]",
    ),
    run("a matrix without values", "matrix: {seed: []}\n", "train/job.yaml:2: matrix.seed: must not be empty"),
    run(
        "a matrix of lists",
        "matrix: {layers: [[1, 2], [3]]}\n",
        "train/job.yaml:2: matrix.layers.0: must be text, a number, true or false, got [1, 2]",
        "train/job.yaml:2: matrix.layers.1: must be text, a number, true or false, got [3]",
    ),
    run(
        "a matrix key with a space",
        'matrix: {"learning rate": [1]}\n',
        "train/job.yaml:2: matrix.learning rate: must be letters, digits, '_' and '-', and start with a "
        'letter, got "learning rate"',
    ),
    run(
        "a matrix of more than 100,000 tasks",
        "matrix:\n" + "".join(f"  {key}: {list(range(50))}\n" for key in "abc"),
        "train/job.yaml:2: matrix: makes 125,000 tasks, and a job has at most 100,000",
    ),
    run(
        "one and a half GPUs",
        "resources: {gpus: 1.5}\n",
        "train/job.yaml:2: resources.gpus: must be a fraction below 1 or a whole number, got 1.5",
    ),
    run(
        "an unknown resource",
        "resources: {num_gpus: 1}\n",
        "train/job.yaml:2: resources.num_gpus: is not a known key; did you mean 'gpus'?",
    ),
    run("no for together", "together: no\n", 'train/job.yaml:2: together: must be true or false, got "no"'),
    run("fewer than no retries", "retries: -1\n", "train/job.yaml:2: retries: must be at least 0, got -1"),
    run(
        "a timeout as YAML 1.1 would count it",
        "timeout: 1:30\n",
        "train/job.yaml:2: timeout: must be a duration such as 90s, 5m, 2h or 1d (units: s, m, h, d), at "
        'most 3650d, got "1:30"',
    ),
)
