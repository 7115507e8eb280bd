"""All output for users: results, errors, progress of steps, a run's output, the next command."""
