"""The output for users: results, errors, progress, a run's output, the next command."""
