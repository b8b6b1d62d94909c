"""The exceptions that are shown to a person as a sentence, without a traceback."""


class UserError(Exception):
    """What a user can cause and can fix: says where, what was found, what was expected, what to do."""

    exit_code = 2


class TrainingDiverged(UserError):
    """Training met so many non-finite losses in a row that going on would be a waste."""

    exit_code = 3


class TrainingStopped(UserError):
    """Training was asked to stop, has saved what it had, and can be resumed (EX_TEMPFAIL)."""

    exit_code = 75


def did_you_mean(word: str, known: list[str]) -> str:
    """Return ' Did you mean "x"?' for the known word most like `word`, or nothing if none is like it."""
    from difflib import get_close_matches

    matches = get_close_matches(word, known, n=1, cutoff=0.5)
    return f' Did you mean "{matches[0]}"?' if matches else ""
