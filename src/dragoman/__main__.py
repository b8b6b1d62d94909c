"""`python -m dragoman` is `dragoman`."""

import sys


def _leave_out_current_directory() -> None:
    """Remove the current directory from the path: `python -m` puts it first, and its `torch.py` would be imported."""
    if not sys.flags.safe_path:
        del sys.path[0]


if __name__ == "__main__":
    _leave_out_current_directory()
    from dragoman.cli.main import main

    main()
