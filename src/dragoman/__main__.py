"""The program `dragoman`, which is also `python -m dragoman`: how it starts, and how signals end it."""

import os
import signal
import sys
import threading
from contextlib import suppress

_REPEAT_SECONDS = 0.05


def main() -> None:
    """Run the program. Ctrl-C ends it without a traceback, even while it is imported; so do SIGTERM and SIGHUP."""
    sys.unraisablehook = _repeat_signal
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


class _SignalExit(SystemExit):
    """The exit that a signal has asked for."""


def _exit_on_signal(number: int, _frame: object) -> None:
    """Exit and remove temporary files; a second signal ends the process at once."""
    signal.signal(number, signal.SIG_DFL)
    raise _SignalExit(128 + number)


def _repeat_signal(unraisable: "sys.UnraisableHookArgs") -> None:
    """Send a signal again if its exception was ignored: it came in the callback of a weak reference or the like."""
    error = unraisable.exc_value
    if isinstance(error, KeyboardInterrupt):
        _send_soon(signal.SIGINT)
    elif isinstance(error, _SignalExit):
        number = int(str(error.code)) - 128
        signal.signal(number, _exit_on_signal)
        _send_soon(number)
    else:
        sys.__unraisablehook__(unraisable)


def _send_soon(number: int) -> None:
    """Send a signal to this process when the callback has ended."""
    timer = threading.Timer(_REPEAT_SECONDS, os.kill, (os.getpid(), number))
    timer.daemon = True
    timer.start()


def _leave_out_current_directory() -> None:
    """Remove the current directory from the path: `python -m` puts it first, and its `torch.py` would be imported."""
    if not sys.flags.safe_path:
        del sys.path[0]


if __name__ == "__main__":
    _leave_out_current_directory()
    main()
