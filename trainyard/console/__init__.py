"""What people see of a command or a Python program: results, errors, progress, a run's output, the
next command.
"""
