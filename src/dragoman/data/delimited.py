"""Tables of pairs: tab-separated text and CSV, with or without a header.

Tab-separated cells are taken as they are. In CSV (commas or semicolons), a cell in quotation marks may contain the
separator, doubled quotation marks and line breaks (RFC 4180).
"""

import csv
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from dragoman.data.lines import Entry, OnFileNotice, put_on_one_line, read_lines
from dragoman.errors import UserError, format_count
from dragoman.text.languages import Languages, choose_names, guess_names

_TableRow = tuple[int, list[str]]  # the line where a row begins, and its cells

_SEPARATOR_NAMES = {"\t": "tab", ",": "comma", ";": "semicolon"}
_QUOTED = re.compile(r'"[^"]*"')
_MESSAGE_LENGTH = 60  # characters of a row that a message shows


def read_delimited(file: Path, languages: Languages | None, on_notice: OnFileNotice | None = None) -> Iterator[Entry]:
    """Yield the pairs of a table.

    `languages` are names of the header, or "1" and "2" for the first and second column of a table without a header.
    Without them, a header with two language codes tells source and target, and tab-separated text without a header has
    two columns.
    """
    lines = read_lines(file, on_notice)
    first = next(lines)
    separator = _find_separator(file, first, languages)
    rows = _split_rows(chain([first], lines), separator, file)
    by_position = _columns_by_position(languages)
    number, header = next(rows)
    if by_position:
        columns, rows = by_position, chain([(number, header)], rows)
        if max(columns) >= len(header):
            raise _wrong_columns_error(file, number, header, max(columns) + 1, separator)
    elif languages or separator != "\t" or guess_names(_stripped(header)):
        names = _stripped(header)
        chosen = choose_names(names, languages, f"{file}: line 1", "column")
        columns = names.index(chosen[0]), names.index(chosen[1])
        if on_notice and not languages:
            on_notice(f'{file}: the first line is a header; source is "{chosen[0]}" and target is "{chosen[1]}".')
    else:
        columns, rows, header = (0, 1), chain([(number, header)], rows), ["", ""]
    source, target = columns
    for number, row in rows:
        if len(row) != len(header):
            if len(row) == 1 and not row[0].strip(" "):
                yield number, "", ""  # an empty line is an empty pair
                continue
            raise _wrong_columns_error(file, number, row, len(header), separator)
        yield number, put_on_one_line(row[source]), put_on_one_line(row[target])


def _find_separator(file: Path, first: str, languages: Languages | None) -> str:
    unquoted = _QUOTED.sub("", first)
    most = max(_SEPARATOR_NAMES, key=unquoted.count)
    if file.name.lower().removesuffix(".gz").endswith(".csv"):
        return most if most in unquoted else ","
    if "\t" in first or most not in unquoted:
        return "\t"
    return most if languages or guess_names([name.strip('" ') for name in first.split(most)]) else "\t"


def _stripped(cells: list[str]) -> list[str]:
    return [cell.strip() for cell in cells]


def _columns_by_position(languages: Languages | None) -> tuple[int, int] | None:
    if not languages or not all(name.isdecimal() and int(name) > 0 for name in languages):
        return None
    return int(languages[0]) - 1, int(languages[1]) - 1


def _split_rows(lines: Iterable[str], separator: str, file: Path) -> Iterator[_TableRow]:
    if separator == "\t":
        yield from ((number, line.split("\t")) for number, line in enumerate(lines, 1))
        return
    rows = csv.reader((f"{line}\n" for line in lines), delimiter=separator, strict=True)
    while True:
        number = rows.line_num + 1
        try:
            row = next(rows, None)
        except csv.Error as error:
            raise _quoting_error(file, number, str(error)) from None
        if row is None:
            return
        yield number, row or [""]


def _quoting_error(file: Path, number: int, reason: str) -> UserError:
    if "field limit" in reason or "unexpected end" in reason:
        reason = "a quotation mark is not closed"
    elif "expected after" in reason:
        reason = "there is text after a closing quotation mark"
    elif "new-line character" in reason:
        reason = "there is a carriage return outside quotation marks"
    return UserError(
        f"{file}: line {number:,}: {reason}. Put quotation marks around a cell that contains quotation marks or line "
        'breaks, and double each quotation mark inside: "She said ""yes""."'
    )


def _wrong_columns_error(file: Path, number: int, row: list[str], expected: int, separator: str) -> UserError:
    text = separator.join(row)
    start = repr(text if len(text) <= _MESSAGE_LENGTH else text[:_MESSAGE_LENGTH] + "…")
    if separator == "\t" and len(row) == 1 and expected == 2:
        return UserError(f"{file}: line {number:,} has no tab between source and target: {start}.")
    name, found = _SEPARATOR_NAMES[separator], len(row)
    message = f"{file}: line {number:,} has {format_count(found, 'column')}; expected {expected}: {start}."
    if separator != "\t":
        return UserError(f"{message} Put a cell with a {name} in quotation marks.")
    if found > expected == 2 and number == 1:
        return UserError(f"{message} Choose two columns with --columns 1,2, or by the names of a header.")
    return UserError(f"{message} Add or remove tabs.")
