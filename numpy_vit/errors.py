"""What can be wrong with a file or with data, as opposed to a programmer's mistake.

A wrong argument raises ValueError or TypeError.  A wrong file raises one of these; its text is one line
that says what was wrong and what to do, because the command line prints it as it is.
"""


class NumpyVitError(Exception):
    """Anything about files and data that a user can act on."""


class DataError(NumpyVitError):
    """A data set is missing, broken or does not fit together."""


class CheckpointError(NumpyVitError):
    """A checkpoint is missing, broken or does not fit the model."""
