"""Results on the operator's machine: one directory for each run, never rewritten by another run."""
