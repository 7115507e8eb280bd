"""The use cases: what a command and the Python API do, each a function that both call alike.

`cluster` is one that a file describes; `clusters` finds, makes, asks and removes it, and
`cluster_list` knows all; `runs`, `sweeps` and `resume` prepare what is dispatched, and find what
was; `usage` is what is in use. `run_guard` keeps a change of a cluster from ending runs unasked,
`leftovers` removes what killed runs left, and `new_project` writes a user's first files.
"""
