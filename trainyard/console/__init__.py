"""All output for users: results, errors, progress, runs, the next command."""
