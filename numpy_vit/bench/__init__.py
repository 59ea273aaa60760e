"""Timing: the work that is timed, the processes that do it, and where the time goes."""
