"""The one exception that means "the caller can fix this"."""


class InputError(ValueError):
    """Input that cannot be used; the message says what was expected, what came and what to do.

    The command line prints it as one line and exits with 2; it never shows a traceback for it.
    """
