"""Job files that are YAML, and wrong: environments, outputs, nodes, lists of tasks."""

from tests.bad_input.case import job, run

JOB_PARTS = (
    run(
        "a variable that is Trainyard's",
        "env: {TRAINYARD_OUTPUT: /tmp}\n",
        "train/job.yaml:2: env.TRAINYARD_OUTPUT: is set by Trainyard: names that begin with TRAINYARD_ are its own",
    ),
    run(
        "GPUs chosen by hand",
        'env: {CUDA_VISIBLE_DEVICES: "0"}\n',
        "train/job.yaml:2: env.CUDA_VISIBLE_DEVICES: is set by Trainyard: it follows from resources.gpus",
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
        "packages as one text",
        "runtime_env: {uv: numpy}\n",
        'train/job.yaml:2: runtime_env.uv: must be a list, got "numpy"',
    ),
    run(
        "a wheel that is not there",
        "runtime_env: {wheels: [dist/x.whl]}\n",
        "train/job.yaml:2: runtime_env.wheels.0: does not exist (paths are relative to the job's "
        'directory), got "dist/x.whl"',
    ),
    run(
        "a wheel that is none",
        "runtime_env: {wheels: [setup.py]}\n",
        'train/job.yaml:2: runtime_env.wheels.0: must end in .whl, got "setup.py"',
    ),
    run(
        "a file that is not there",
        "runtime_env: {files: [../nowhere]}\n",
        "train/job.yaml:2: runtime_env.files.0: does not exist (paths are relative to the job's "
        'directory), got "../nowhere"',
    ),
    run(
        "a file whose name no system accepts",
        f"runtime_env: {{files: [{'a' * 300}]}}\n",
        "train/job.yaml:2: runtime_env.files.0: does not exist (paths are relative to the job's "
        'directory), got "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa...',
    ),
    run(
        "a working directory for Ray",
        "runtime_env: {working_dir: .}\n",
        "train/job.yaml:2: runtime_env.working_dir: is not a known key; known: uv, pip, wheels, env_vars, files",
    ),
    run(
        "an output above the directory",
        "outputs: [../secrets]\n",
        "train/job.yaml:2: outputs.0: must stay inside the task's directory: no '..' and no '\\', got \"../secrets\"",
    ),
    run(
        "an output that climbs",
        "outputs: [runs/../../etc]\n",
        "train/job.yaml:2: outputs.0: must stay inside the task's directory: no '..' and no '\\', got "
        '"runs/../../etc"',
    ),
    run(
        "an absolute output",
        "outputs: [/etc]\n",
        'train/job.yaml:2: outputs.0: must be relative to the task\'s directory, got "/etc"',
    ),
    run(
        "an output in the home directory",
        "outputs: [~/runs]\n",
        'train/job.yaml:2: outputs.0: must be relative to the task\'s directory, got "~/runs"',
    ),
    run(
        "the whole directory as an output",
        "outputs: [./]\n",
        'train/job.yaml:2: outputs.0: must be a part of the task\'s directory, not all of it, got "./"',
    ),
    run(
        "an output of Windows",
        "outputs: ['runs\\..\\x', 'C:\\runs']\n",
        "train/job.yaml:2: outputs.0: must stay inside the task's directory: no '..' and no '\\', got "
        '"runs\\\\..\\\\x"',
        'train/job.yaml:2: outputs.1: must be relative to the task\'s directory, got "C:\\\\runs"',
    ),
    run(
        "an empty output",
        'outputs: [""]\n',
        'train/job.yaml:2: outputs.0: must not be empty, got ""',
    ),
    run(
        "an output with a newline",
        'outputs: ["runs\\n"]\n',
        'train/job.yaml:2: outputs.0: must be printable characters, got "runs\\n"',
    ),
    run(
        "an output twice",
        "outputs: [runs, runs/]\n",
        'train/job.yaml:2: outputs.1: is there twice, got "runs"',
    ),
    run(
        "a node and a group",
        "node: {name: head, group: gpu}\n",
        "train/job.yaml:2: node: must have one of: name, group",
    ),
    run(
        "no node in node",
        "node: {}\n",
        "train/job.yaml:2: node: must have one of: name, group",
    ),
    run(
        "a node as text",
        "node: head\n",
        'train/job.yaml:2: node: must be a mapping of keys to values, got "head"',
    ),
    job(
        "no tasks in tasks",
        "tasks: []\n",
        "train/job.yaml:1: tasks: must have at least one task",
    ),
    job(
        "a task without a name",
        "tasks: [{command: [a.py]}]\n",
        "train/job.yaml:1: tasks.0.name: is missing: the task's name, unique in the job",
    ),
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
        "a task's name with dots",
        "tasks: [{name: a..b, command: [a.py]}]\n",
        "train/job.yaml:1: tasks.0.name: must be letters, digits and any of . _ = , + - without '..', "
        'start with a letter or digit, at most 100 characters, got "a..b"',
    ),
    job(
        "a task's name that is not ASCII",
        "tasks: [{name: größe, command: [a.py]}]\n",
        "train/job.yaml:1: tasks.0.name: must be letters, digits and any of . _ = , + - without '..', "
        'start with a letter or digit, at most 100 characters, got "größe"',
    ),
    job(
        "a task with a matrix",
        "tasks: [{name: a, command: [a.py], matrix: {seed: [1]}}]\n",
        "train/job.yaml:1: tasks.0.matrix: is not a known key; known: name, command, resources, node, env, "
        "retries, timeout, outputs",
    ),
    run(
        "an unknown smoke test",
        "smoke: {gpu: true}\n",
        "train/job.yaml:2: smoke.gpu: is not a known key; did you mean 'gpus'?",
    ),
    run(
        "a number of disks",
        "smoke: {min_disk: 10}\n",
        "train/job.yaml:2: smoke.min_disk: must be a size such as 4GiB or 500MB (units: KiB, MiB, GiB, "
        "TiB, KB, MB, GB, TB), got 10",
    ),
    job(
        "a name in the file",
        "name: mine\ncommand: [python, train.py]\n",
        "train/job.yaml:1: name: must not be given: a job's name is its directory's name",
    ),
    run(
        "an unknown key",
        "retry: 2\n",
        "train/job.yaml:2: retry: is not a known key; did you mean 'retries'?",
    ),
)
