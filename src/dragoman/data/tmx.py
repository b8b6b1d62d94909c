"""Translation memories (TMX): read unit by unit, in memory for one unit.

A unit (`<tu>`) has variants (`<tuv>`) in several languages. Codes inside a segment (`<bpt>`, `<ph>` and others) are
dropped with their content, which is markup of another program; the text inside other elements (`<hi>`) is kept.
A document type is allowed, as most files have one, but it is never read, and entities of its own are refused.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from xml.parsers import expat

from dragoman.data.lines import BLOCK_BYTES, MAX_LINE_BYTES, Entry, OnFileNotice, open_bytes, put_on_one_line
from dragoman.errors import UserError, format_count
from dragoman.text.languages import Languages, columns_hint, matches_language, primary_language

_CODES = {"bpt", "ept", "it", "ph", "ut"}  # their content is not text
_MAX_LISTED_LANGUAGES = 12


@dataclass
class _TranslationUnit:
    """A unit: the line where it begins, and its variants as languages and texts."""

    line: int
    variants: list[tuple[str, str]] = field(default_factory=list)


def read_tmx(file: Path, languages: Languages | None, on_notice: OnFileNotice | None = None) -> Iterator[Entry]:
    """Yield the pairs of a translation memory; units without both languages are skipped, and counted in a notice.

    Without `languages`, the file must have two: the source language of its header, and another.
    """
    parser = _TmxParser(file)
    found: dict[str, None] = {}
    units = pairs = 0
    is_guessed = languages is None
    for unit in parser.read_units():
        units += 1
        tags = [tag for tag, _ in unit.variants]
        if len(found) < _MAX_LISTED_LANGUAGES:
            found |= dict.fromkeys(tags)
        if languages is None and len(set(tags)) > 1:
            languages = _guess_languages(file, unit, parser.source_language)
            if on_notice:
                on_notice(f'{file}: source is "{languages[0]}" and target is "{languages[1]}".')
        if languages is None:
            continue
        if is_guessed:
            _check_no_third_language(file, unit, languages)
        source, target = (_text_in(unit, language) for language in languages)
        if source is not None and target is not None:
            pairs += 1
            yield unit.line, source, target
    if not pairs:
        raise UserError(_no_pairs_message(file, units, languages, list(found)))
    if on_notice and pairs < units and languages:
        missing = f'"{languages[0]}" or "{languages[1]}"'
        on_notice(f"{file}: skipped {units - pairs:,} of {format_count(units, 'unit')}, which lack {missing}.")


def _guess_languages(file: Path, unit: _TranslationUnit, source_language: str) -> Languages:
    tags = list(dict.fromkeys(tag for tag, _ in unit.variants))
    sources = [tag for tag in tags if source_language and matches_language(tag, source_language)]
    others = [tag for tag in tags if tag not in sources]
    where = f"{file}: line {unit.line:,}"
    if len(tags) > 2:
        raise UserError(f"{where}: the unit has {len(tags)} languages: {', '.join(tags)}. {columns_hint(tags)}")
    if not sources or not others:
        named = f'"{source_language}"' if source_language else "missing"
        raise UserError(
            f"{where}: the source language of the header (srclang) is {named}; the unit has {' and '.join(tags)}. "
            f"{columns_hint(tags)}"
        )
    source, target = sources[0], others[0]
    if primary_language(source) == primary_language(target):
        return source, target  # such as en-US and en-GB
    return primary_language(source), primary_language(target)


def _check_no_third_language(file: Path, unit: _TranslationUnit, languages: Languages) -> None:
    for tag, _ in unit.variants:
        if not any(matches_language(tag, language) for language in languages):
            raise UserError(
                f"{file}: line {unit.line:,}: the unit has a third language, {tag}, beside {' and '.join(languages)}. "
                f"{columns_hint(languages)}"
            )


def _text_in(unit: _TranslationUnit, language: str) -> str | None:
    # The variant in the very language, or else the first that only adds a region.
    exact = (text for tag, text in unit.variants if tag.lower() == language.lower())
    regional = (text for tag, text in unit.variants if matches_language(tag, language))
    return next(exact, next(regional, None))


def _no_pairs_message(file: Path, units: int, languages: Languages | None, found: list[str]) -> str:
    if not units:
        return f"{file}: the translation memory has no units (<tu>)."
    listed = ", ".join(found) or "none"
    if languages is None:
        return f"{file}: no unit has two languages; the languages are {listed}."
    return f'{file}: no unit has both "{languages[0]}" and "{languages[1]}"; the languages are {listed}.'


class _TmxParser:
    """Parses a file in blocks and yields its units."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.source_language = ""  # of the header
        self.units: list[_TranslationUnit] = []  # complete ones that were not yielded yet
        self.unit: _TranslationUnit | None = None
        self.language: str | None = None  # of the variant that is open
        self.text: list[str] | None = None  # of the segment that is open
        self.size = 0  # characters of the unit
        self.code_depth = 0  # how many codes are open
        self.has_segment = False
        parser = self.parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler = self.start_element
        parser.EndElementHandler = self.end_element
        parser.CharacterDataHandler = self.add_text
        parser.EntityDeclHandler = self._refuse("declares an entity")
        parser.ExternalEntityRefHandler = self._refuse("refers to another file")
        parser.SkippedEntityHandler = self._refuse("uses an entity that is not defined")

    def read_units(self) -> Iterator[_TranslationUnit]:
        """Yield every unit; raise an error with file and line if the file is not well-formed."""
        with open_bytes(self.file) as stream:
            is_last = False
            while not is_last:
                block = stream.read(BLOCK_BYTES)
                is_last = not block
                self._parse(block, is_last)
                yield from self.units
                self.units.clear()

    def _parse(self, block: bytes, is_last: bool) -> None:
        try:
            self.parser.Parse(block, is_last)
        except expat.ExpatError as error:
            raise UserError(
                f"{self.file}: line {error.lineno:,}, column {error.offset + 1:,}: not well-formed XML "
                f"({expat.ErrorString(error.code)}). Repair the file, or export it again."
            ) from None
        except (LookupError, ValueError) as error:
            raise UserError(f"{self.file}: its encoding cannot be read ({error}). Export it again as UTF-8.") from None

    def error(self, text: str) -> UserError:
        """Return an error at the current line."""
        return UserError(f"{self.file}: line {self.parser.CurrentLineNumber:,}: {text}")

    def _refuse(self, action: str) -> Callable[..., int]:
        def refuse(name: str | None, *_: object) -> int:
            shown = f" ({name[:40]})" if name else ""
            raise self.error(
                f"the file {action}{shown}, which is refused: TMX needs no entities, and they can read other files or "
                "exhaust the memory. Export the file again without them."
            )

        return refuse

    def start_element(self, name: str, attributes: dict[str, str]) -> None:
        """Begin a unit, a variant or a segment."""
        if self.text is not None:
            self.code_depth += name in _CODES
        elif name == "header":
            self.source_language = attributes.get("srclang", "")
        elif name == "tu":
            if self.unit:
                raise self.error("a unit (<tu>) inside a unit.")
            self.unit, self.size = _TranslationUnit(self.parser.CurrentLineNumber), 0
        elif name == "tuv" and self.unit:
            self.language = attributes.get("xml:lang") or attributes.get("lang")
            self.has_segment = False
            if not self.language:
                raise self.error('a variant (<tuv>) has no language; expected xml:lang="…".')
        elif name == "seg" and self.unit and self.language:
            if self.has_segment:
                raise self.error("a variant (<tuv>) has two segments (<seg>); expected one.")
            self.text, self.has_segment = [], True

    def add_text(self, text: str) -> None:
        """Add text to the segment that is open."""
        if self.text is not None and not self.code_depth:
            self.text.append(text)
            self.size += len(text)
            if self.size > MAX_LINE_BYTES:
                raise self.error(f"the unit has more than {MAX_LINE_BYTES:,} characters. Split or remove it.")

    def end_element(self, name: str) -> None:
        """Complete a unit, a variant or a segment."""
        if self.text is not None and name != "seg":
            self.code_depth -= name in _CODES
        elif name == "seg" and self.text is not None and self.unit and self.language:
            self.unit.variants.append((self.language, put_on_one_line("".join(self.text))))
            self.text = None
        elif name == "tuv" and self.unit:
            if not self.has_segment:
                raise self.error("a variant (<tuv>) has no segment (<seg>).")
            self.language = None
        elif name == "tu" and self.unit:
            self.units.append(self.unit)
            self.unit = None
