"""Job files that are YAML, and wrong: commands, matrices, resources."""

from tests.bad_input.case import job, run

JOBS = (
    job(
        "nothing to run",
        "retries: 1\n",
        "train/job.yaml:1: command: is missing: give command, or tasks",
    ),
    job(
        "a command as one text",
        "command: python train.py\n",
        'train/job.yaml:1: command: must be a list, got "python train.py"',
    ),
    job(
        "an empty command",
        "command: []\n",
        "train/job.yaml:1: command: must not be empty: it is a list of a program and its arguments",
    ),
    job(
        "a command whose program is empty",
        'command: ["", train.py]\n',
        'train/job.yaml:1: command.0: must not be empty: it is the program to run, got ""',
    ),
    job(
        "a number in the command",
        "command: [python, train.py, --seed, 0]\n",
        'train/job.yaml:1: command.3: must be text, got 0; write it in quotes: "0"',
    ),
    job(
        "a NUL character in the command",
        'command: [python, "a\\0b"]\n',
        'train/job.yaml:1: command.1: must not contain a NUL character, got "a\\u0000b"',
    ),
    run(
        "command and tasks",
        "tasks: [{name: a, command: [true.py]}]\n",
        "train/job.yaml:2: tasks: must not be given together with command: each task has its own",
    ),
    job(
        "matrix and tasks",
        "matrix: {seed: [0]}\ntasks: [{name: a, command: [a.py]}]\n",
        "train/job.yaml:2: tasks: must not be given together with matrix: list every task, or use command and matrix",
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
    ),
    run(
        "a placeholder in a variable",
        'env: {SEED: "{seed}"}\n',
        'train/job.yaml:2: env.SEED: names {seed}, but there is no matrix, got "{seed}"; write '
        "'{{seed}}' for the text itself",
    ),
    run(
        "a matrix that is a list",
        "matrix: [0, 1]\n",
        "train/job.yaml:2: matrix: must be a mapping of keys to values, got [0, 1]",
    ),
    run(
        "a matrix without values",
        "matrix: {seed: []}\n",
        "train/job.yaml:2: matrix.seed: must have at least one value",
    ),
    run(
        "a matrix of one value",
        "matrix: {seed: 3}\n",
        "train/job.yaml:2: matrix.seed: must be a list, got 3",
    ),
    run(
        "a matrix of lists",
        "matrix: {layers: [[1, 2], [3]]}\n",
        "train/job.yaml:2: matrix.layers.0: must be text, a number, true or false, got [1, 2]",
        "train/job.yaml:2: matrix.layers.1: must be text, a number, true or false, got [3]",
    ),
    run(
        "a matrix with nothing in it",
        "matrix: {seed: [0, null]}\n",
        "train/job.yaml:2: matrix.seed.1: must be text, a number, true or false, got nothing",
    ),
    run(
        "a matrix with a value twice",
        'matrix: {seed: [0, 1, "0"]}\n',
        'train/job.yaml:2: matrix.seed.2: is there twice, got "0"',
    ),
    run(
        "a matrix with infinity",
        "matrix: {lr: [.inf]}\n",
        "train/job.yaml:2: matrix.lr.0: must be a finite number, got Infinity",
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
        "train/job.yaml:2: resources.gpus: must be a fraction below 1 (in steps of 0.0001) or a whole number, got 1.5",
    ),
    run(
        "a share of a GPU finer than Ray's",
        "resources: {gpus: 0.00001}\n",
        "train/job.yaml:2: resources.gpus: must be a fraction below 1 (in steps of 0.0001) or a whole "
        "number, got 1e-05",
    ),
    run(
        "negative CPUs",
        "resources: {cpus: -1}\n",
        "train/job.yaml:2: resources.cpus: must be at least 0, got -1",
    ),
    run(
        "infinite CPUs",
        "resources: {cpus: .inf}\n",
        "train/job.yaml:2: resources.cpus: must be a finite number, got Infinity",
    ),
    run(
        "not a number of GPUs",
        "resources: {gpus: .nan}\n",
        "train/job.yaml:2: resources.gpus: must be a finite number, got NaN",
    ),
    run(
        "memory in lower case",
        "resources: {memory: 2gib}\n",
        "train/job.yaml:2: resources.memory: must be a size such as 4GiB or 500MB (units: KiB, MiB, GiB, "
        'TiB, KB, MB, GB, TB), got "2gib"',
    ),
    run(
        "an unknown resource",
        "resources: {num_gpus: 1}\n",
        "train/job.yaml:2: resources.num_gpus: is not a known key; did you mean 'gpus'?",
    ),
    run(
        "no for together",
        "together: no\n",
        'train/job.yaml:2: together: must be true or false, got "no"',
    ),
    run(
        "fewer than no retries",
        "retries: -1\n",
        "train/job.yaml:2: retries: must be at least 0, got -1",
    ),
    run(
        "half a retry",
        "retries: 1.5\n",
        "train/job.yaml:2: retries: must be a whole number, got 1.5",
    ),
    run(
        "a timeout of nothing",
        "timeout: 0s\n",
        'train/job.yaml:2: timeout: must be a duration such as 90s, 5m, 2h or 1d (units: s, m, h, d), got "0s"',
    ),
    run(
        "a timeout as YAML 1.1 would count it",
        "timeout: 1:30\n",
        'train/job.yaml:2: timeout: must be a duration such as 90s, 5m, 2h or 1d (units: s, m, h, d), got "1:30"',
    ),
    run(
        "a timeout of a century",
        "timeout: 36500d\n",
        'train/job.yaml:2: timeout: must be at most 3650d, got "36500d"',
    ),
)
