"""Exceptions that the command line shows as a message, without a traceback."""


class UserError(Exception):
    """An error that the user can fix: where it is, what was found, what was expected, what to do."""

    exit_code = 2


class TrainingDiverged(UserError):
    """The loss was not finite in too many consecutive steps."""

    exit_code = 3


class TrainingStopped(UserError):
    """Training was stopped on request after saving, and can be resumed (EX_TEMPFAIL)."""

    exit_code = 75


def did_you_mean(word: str, known: list[str]) -> str:
    """Return ' Did you mean "x"?' for the most similar known word, or an empty string if none is similar."""
    from difflib import get_close_matches

    matches = get_close_matches(word, known, n=1, cutoff=0.5)
    return f' Did you mean "{matches[0]}"?' if matches else ""
