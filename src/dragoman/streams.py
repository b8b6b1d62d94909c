"""The standard streams of the program and of its child processes: control characters, closed streams, failed writes.

Text from data, recipes, paths or models may contain control characters, which could move the cursor, change the title
of the terminal or reverse the order of letters. Standard error shows all of them escaped. Standard output does so on a
terminal; into a file or a pipe, results are written as they are.
"""

import errno
import io
import os
import re
import signal
import sys
from contextlib import suppress
from typing import BinaryIO, NoReturn, cast

from dragoman.errors import UserError

# C0 without tab and line feed, DEL, C1, line and paragraph separators, and all that changes the direction of writing
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def escape_controls(text: str) -> str:
    r"""Return a text with every control character but tab and line feed written as \x1b or \u202e."""
    return _CONTROLS.sub(lambda match: ascii(match[0])[1:-1], text)


class _StandardOutput(io.TextIOWrapper):
    """Standard output as UTF-8 in every locale; file names in other encodings keep their bytes.

    If its reader has gone, as in `dragoman translate RUN < FILE | head -1`, the program ends quietly. If it cannot be
    written for another reason, a UserError says that results are lost.
    """

    def write(self, text: str) -> int:
        """Write a text; escape its control characters on a terminal."""
        try:
            return super().write(escape_controls(text) if self.isatty() else text)
        except OSError as error:
            self._fail(error)

    def flush(self) -> None:
        """Write what is buffered."""
        try:
            super().flush()
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> NoReturn:
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())  # for what is still in the buffer
        if error.errno == errno.EPIPE:
            sys.exit(128 + signal.SIGPIPE)
        reason = "it is closed" if error.errno == errno.EBADF else error.strerror or str(error)
        raise UserError(f"The results cannot be written to standard output: {reason}.") from None


class StandardError(io.TextIOWrapper):
    """Standard error with all control characters escaped. Messages that cannot be written are lost: work goes on."""

    def write(self, text: str) -> int:
        """Write a text with its control characters escaped."""
        return self.write_unescaped(escape_controls(text))

    def write_unescaped(self, text: str) -> int:
        """Write a text that may move the cursor or set colours, such as a progress bar."""
        with suppress(OSError):
            super().write(text)
        return len(text)

    def flush(self) -> None:
        """Write what is buffered."""
        with suppress(OSError):
            super().flush()


def protect_streams() -> None:
    """Replace the standard streams of this process, unless a caller such as a test has replaced them already.

    A stream that was closed when the process started is opened in such a way that its use fails with a clear error, and
    that no other file gets its number.
    """
    for descriptor in range(3):
        _open_if_closed(descriptor)
    if sys.stdin is None:
        sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(_useless_descriptor(0))))
    if sys.stdout is None or _is_original(sys.stdout):
        descriptor = sys.stdout.fileno() if sys.stdout else _useless_descriptor(1)
        buffer = io.BufferedWriter(io.FileIO(descriptor, "w", closefd=False))
        on_terminal = buffer.isatty()
        sys.stdout = _StandardOutput(buffer, encoding="utf-8", errors="surrogateescape", line_buffering=on_terminal)
    if sys.stderr is None or _is_original(sys.stderr):
        descriptor = sys.stderr.fileno() if sys.stderr else _useless_descriptor(2)
        encoding = sys.stderr.encoding if sys.stderr else "utf-8"
        # Without a buffer, a message that cannot be written does not hold up the next one.
        raw = cast(BinaryIO, io.FileIO(descriptor, "w", closefd=False))
        sys.stderr = StandardError(raw, encoding=encoding, errors="backslashreplace", write_through=True)


def _is_original(stream: object) -> bool:
    return stream in (sys.__stdout__, sys.__stderr__) and type(stream) is io.TextIOWrapper


def _open_if_closed(descriptor: int) -> None:
    try:
        os.fstat(descriptor)
    except OSError:
        opened = _useless_descriptor(descriptor)
        os.dup2(opened, descriptor)  # child processes inherit it, even if the number is the same
        if opened != descriptor:
            os.close(opened)


def _useless_descriptor(number: int) -> int:
    """Return a new descriptor that standard input cannot be read from, or that standard output cannot be written to."""
    return os.open(os.devnull, os.O_RDONLY if number == 1 else os.O_WRONLY)
