"""Job files that are YAML, and wrong: environments, outputs, nodes, lists of tasks."""

from tests.bad_input.case import job, run

JOB_PARTS = (
    run(
        "a variable that is Trainyard's",
        "env: {TRAINYARD_OUTPUT: /tmp}\n",
        "train/job.yaml:2: env.TRAINYARD_OUTPUT: is set by Trainyard",
    ),
    run(
        "GPUs chosen by hand",
        'env: {CUDA_VISIBLE_DEVICES: "0"}\n',
        "train/job.yaml:2: env.CUDA_VISIBLE_DEVICES: is set by Trainyard",
    ),
    run(
        "a date in a variable is text, a number is not",
        "env: {DAY: 2024-01-01, YEAR: 2024}\n",
        'train/job.yaml:2: env.YEAR: must be text, got 2024; write it in quotes: "2024"',
    ),
    run(
        "two installers",
        "runtime_env: {uv: [numpy], pip: [numpy]}\n",
        "train/job.yaml:2: runtime_env: has both uv and pip: Ray accepts one of them",
    ),
    run(
        "a working directory for Ray",
        "runtime_env: {working_dir: .}\n",
        "train/job.yaml:2: runtime_env.working_dir: is not a known key; known: uv, pip, wheels, env_vars, files",
    ),
    run(
        "an output above the directory",
        "outputs: [../secrets]\n",
        "train/job.yaml:2: outputs.0: must be a path inside the task's directory, without '..' and '\\', "
        'got "../secrets"',
    ),
    run(
        "an absolute output",
        "outputs: [/etc]\n",
        "train/job.yaml:2: outputs.0: must be a path inside the task's directory, without '..' and '\\', got \"/etc\"",
    ),
    run(
        "an output of Windows",
        "outputs: ['runs\\..\\x', 'C:\\runs']\n",
        "train/job.yaml:2: outputs.0: must be a path inside the task's directory, without '..' and '\\', "
        'got "runs\\\\..\\\\x"',
        "train/job.yaml:2: outputs.1: must be a path inside the task's directory, without '..' and '\\', "
        'got "C:\\\\runs"',
    ),
    run(
        "a node and a group",
        "node: {name: head, group: gpu}\n",
        "train/job.yaml:2: node: must have one of: name, group",
    ),
    job("no tasks in tasks", "tasks: []\n", "train/job.yaml:1: command: is missing: give command, or tasks"),
    job("a task without a name", "tasks: [{command: [a.py]}]\n", "train/job.yaml:1: tasks.0.name: is missing"),
    job(
        "two tasks of one name",
        "tasks:\n  - {name: a, command: [a.py]}\n  - {name: a, command: [b.py]}\n",
        'train/job.yaml:3: tasks.1.name: is also the name of tasks.0, got "a"',
    ),
    job(
        "a task's name with a slash",
        "tasks: [{name: a/b, command: [a.py]}]\n",
        "train/job.yaml:1: tasks.0.name: must be letters, digits and any of . _ = , + - without '..', "
        'start with a letter or digit, at most 100 characters, got "a/b"',
    ),
    job(
        "a task with a matrix",
        "tasks: [{name: a, command: [a.py], matrix: {seed: [1]}}]\n",
        "train/job.yaml:1: tasks.0.matrix: is not a known key; known: name, command, resources, node, "
        "env, retries, timeout, outputs",
    ),
    run(
        "an unknown smoke test",
        "smoke: {gpu: true}\n",
        "train/job.yaml:2: smoke.gpu: is not a known key; did you mean 'gpus'?",
    ),
    job(
        "a name in the file",
        "name: mine\ncommand: [python, train.py]\n",
        "train/job.yaml:1: name: must not be given: a job's name is its directory's name",
    ),
    run("an unknown key", "retry: 2\n", "train/job.yaml:2: retry: is not a known key; did you mean 'retries'?"),
)
