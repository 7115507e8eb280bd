"""Results on the operator's machine: one directory for each run, which no other run changes."""
