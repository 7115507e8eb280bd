"""Results on the operator's machine: a run changes only its own directory."""
