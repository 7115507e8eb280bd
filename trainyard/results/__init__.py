"""Results on the operator's machine, with a directory for each run.

A run never changes the directory of another run.
"""
