"""The use cases: one function each, called by commands and the Python API.

`cluster` is a cluster that a file describes. `clusters` finds, makes, queries
and removes it, `scale` changes its size, `nodes` has the logs and shells of its
nodes. `cluster_list` lists all. `new_run`, `sweeps` and `resume` prepare a job
for dispatch; `runs` finds runs, and reads them. `usage` asks which resources
are in use. `run_guard` refuses to end active runs without the user's consent.
`leftovers` removes Ray actors of killed runs. `new_project` writes a user's
first files.
"""
