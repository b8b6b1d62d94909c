"""The program `dragoman`, which is also `python -m dragoman`: how it starts, and how signals end it."""

import os
import signal
import sys
from contextlib import suppress


def main() -> None:
    """Run the program. Ctrl-C ends it without a traceback, even while it is imported; so do SIGTERM and SIGHUP."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # `nohup` ignores SIGHUP
            signal.signal(number, _exit_on_signal)
    try:
        from dragoman.cli.main import main as run_program

        run_program()
    except KeyboardInterrupt:
        with suppress(OSError):
            os.write(2, b"dragoman: interrupted.\n")
        sys.exit(128 + signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # nothing is left to be done


def _exit_on_signal(number: int, _frame: object) -> None:
    """Exit and remove temporary files; a second signal ends the process at once."""
    signal.signal(number, signal.SIG_DFL)
    sys.exit(128 + number)


def _leave_out_current_directory() -> None:
    """Remove the current directory from the path: `python -m` puts it first, and its `torch.py` would be imported."""
    if not sys.flags.safe_path:
        del sys.path[0]


if __name__ == "__main__":
    _leave_out_current_directory()
    main()
