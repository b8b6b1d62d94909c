"""Files of pairs: tab-separated text, CSV, JSON Lines and TMX give the same pairs, and name what is wrong in them."""

import csv
import gzip
import io
import json
import tracemalloc
from xml.sax.saxutils import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.data.arrays import tokenize_corpus
from dragoman.data.corpus import ParallelCorpus, select_pairs
from dragoman.data.split import split_held_out
from dragoman.errors import UserError

PAIRS = [("A dog.", "Ein Hund."), ("", "leer"), ('5 < 6 & "so", it\'s', "5 < 6; ‚ja‘"), ("snow 雪", "Schnee 🙂")]


def pairs_in(path, languages=None):
    return list(ParallelCorpus.from_files(pairs=path, languages=languages).pairs())


def refusal(path, languages=None):
    """Return the message with which a file is refused."""
    with pytest.raises(UserError) as caught:
        ParallelCorpus.from_files(pairs=path, languages=languages).count_pairs()
    return str(caught.value).removeprefix(f"{path}")


def tsv_of(pairs) -> bytes:
    return "".join(f"{source}\t{target}\n" for source, target in pairs).encode()


def csv_of(pairs, header=("en", "de"), delimiter=",") -> bytes:
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter).writerows([header, *pairs])
    return text.getvalue().encode()


def jsonl_of(pairs) -> bytes:
    return "".join(json.dumps({"en": source, "de": target}) + "\n" for source, target in pairs).encode()


def nested_jsonl_of(pairs) -> bytes:
    objects = ({"id": 1, "translation": {"en": source, "de": target}} for source, target in pairs)
    return "".join(json.dumps(table, ensure_ascii=False) + "\n" for table in objects).encode()


def variant(language: str, text: str) -> str:
    return f'<tuv xml:lang="{language}"><seg>{text}</seg></tuv>'


def tmx(*units: str, srclang: str = "en", doctype: str = "") -> bytes:
    body = "\n".join(f"<tu>{unit}</tu>" for unit in units)
    header = f'<header srclang="{srclang}" segtype="sentence"/>'
    return f'<?xml version="1.0"?>\n{doctype}<tmx version="1.4">{header}<body>\n{body}\n</body></tmx>\n'.encode()


def tmx_of(pairs) -> bytes:
    return tmx(*(variant("en", escape(source)) + variant("de", escape(target)) for source, target in pairs))


FORMATS = {
    "pairs.tsv": tsv_of,
    "header.tsv": lambda pairs: b"en\tde\n" + tsv_of(pairs),
    "pairs.csv": csv_of,
    "semicolon.csv": lambda pairs: csv_of(pairs, delimiter=";"),
    "pairs.jsonl": jsonl_of,
    "nested.jsonl": nested_jsonl_of,
    "pairs.tmx": tmx_of,
    "utf16.tmx": lambda pairs: tmx_of(pairs).decode().encode("utf-16"),
}


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("wrapped", ["plain", "gzip", "BOM", "CRLF", "no suffix"])
def test_every_format_gives_the_same_pairs_however_it_is_stored(write, name, wrapped):
    content, path = FORMATS[name](PAIRS), name
    if wrapped == "gzip":
        content, path = gzip.compress(content, mtime=0), f"{name}.gz"
    elif wrapped == "BOM" and "utf16" not in name:
        content = b"\xef\xbb\xbf" + content
    elif wrapped == "CRLF" and "utf16" not in name:
        content = content.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
    elif wrapped == "no suffix":
        path = "data"
    assert pairs_in(write(path, content)) == PAIRS


@pytest.mark.parametrize("name", FORMATS)
def test_the_same_pairs_have_the_same_fingerprint_in_every_format(write, name):
    plain = ParallelCorpus.from_files(pairs=write("plain", tsv_of(PAIRS)))
    corpus = ParallelCorpus.from_files(pairs=write(name, FORMATS[name](PAIRS)))
    assert (corpus.count_pairs(), corpus.fingerprint()) == (plain.count_pairs(), plain.fingerprint())
    other = ParallelCorpus.from_files(pairs=write("other", FORMATS[name]([*PAIRS[:-1], ("snow", "Schnee")])))
    assert other.fingerprint() != plain.fingerprint()


def test_the_fingerprint_of_tab_separated_pairs_is_that_of_version_0_2(write):
    """A training that was begun then can be resumed."""
    corpus = ParallelCorpus.from_files(pairs=write("pairs.tsv", ["a dog\tein Hund", "", "\tleer"]))
    assert corpus.fingerprint() == "0dd748ce2d79668b009f3e45c3fa9b558c3c01fdbe855cde1ecf6975950873fc"


@pytest.mark.parametrize("name", FORMATS)
def test_arrays_and_held_out_pairs_come_from_every_format(write, tokenizer, name, tmp_path):
    pairs = [(f"source {number}", f"target {number}") for number in range(40)]
    corpus = ParallelCorpus.from_files(pairs=write(name, FORMATS[name](pairs)))
    split = split_held_out(corpus, 4, seed=1)
    parts = [
        tokenize_corpus(corpus, tokenizer, tokenizer, 50, tmp_path / "cache", part=part)
        for part in (split.training, split.validation)
    ]
    assert [len(part) for part in parts] == [36, 4]
    held_out = select_pairs(corpus, parts[1].line_numbers)
    assert [tokenizer.decode(parts[1].target(index)[:-1]) for index in range(4)] == [target for _, target in held_out]


# Any text that one line can hold, and that XML can.
TEXT = st.text(
    st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="\t\n\r\ufeff\ufffe\uffff"), max_size=12
)


@pytest.mark.parametrize("name", ["pairs.csv", "semicolon.csv", "pairs.jsonl", "nested.jsonl", "pairs.tmx"])
@given(pairs=st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=5))
def test_what_is_written_is_read(write, name, pairs):
    assert pairs_in(write(name, FORMATS[name](pairs))) == pairs


# Tables


def test_columns_are_chosen_by_name_and_in_the_order_given(write):
    path = write("t.csv", csv_of([("7", "chien", "dog")], header=("id", "French", "English")))
    assert pairs_in(path, ("English", "french")) == [("dog", "chien")]


def test_a_column_with_a_region_is_the_column_of_its_language(write):
    assert pairs_in(write("t.csv", b"en-GB,fr_CA\ndog,chien\n"), ("fr", "en")) == [("chien", "dog")]
    assert 'several columns match "en": en-GB, en-US' in refusal(write("u.csv", b"en-GB,en-US\na,b\n"), ("en", "en-US"))


def test_columns_are_chosen_by_position_where_there_is_no_header(write):
    """Files for flashcards have the licence in a third column."""
    path = write("fra.txt", ["Go.\tVa !\tCC-BY 2.0", "Hi.\tSalut.\tCC-BY 2.0"])
    assert pairs_in(path, ("1", "2")) == [("Go.", "Va !"), ("Hi.", "Salut.")]
    assert pairs_in(path, ("2", "1"))[0] == ("Va !", "Go.")
    assert pairs_in(write("t.csv", b'"a, b",c\n'), ("1", "2")) == [("a, b", "c")]
    assert "line 1 has 3 columns; expected 2: 'Go." in refusal(path)
    assert "--columns 1,2" in refusal(path)
    assert "line 1 has 3 columns; expected 9" in refusal(path, ("1", "9"))


def test_a_header_is_recognised_by_language_codes_and_noticed(write):
    corpus = ParallelCorpus.from_files(pairs=write("t.tsv", ["id\ten\tfr", "1\tdog\tchien"]))
    assert list(corpus.pairs()) == [("dog", "chien")]
    assert corpus.notices()[0].endswith('the first line is a header; source is "en" and target is "fr".')
    assert pairs_in(write("u.tsv", ["source\ttarget", "a\tb"])) == [("a", "b")]
    assert pairs_in(write("v.tsv", ["cat\tgat", "dog\tgos"])) == [("cat", "gat"), ("dog", "gos")]


def test_a_csv_header_without_language_codes_asks_for_columns(write):
    message = refusal(write("t.csv", b"Nr,English,German\n1,Dog,Hund\n"))
    assert 'line 1: source and target are not clear from the columns "Nr", "English", "German".' in message
    assert 'Choose two with --columns English,German (in a recipe: languages = ["English", "German"]).' in message
    assert 'no column "Englsh"; found "English", "German". Did you mean "English"?' in refusal(
        write("u.csv", b"English,German\nDog,Hund\n"), ("Englsh", "German")
    )


def test_line_breaks_and_tabs_in_a_cell_become_spaces(write):
    path = write("t.csv", b'en,fr\r\n"two\r\n  lines","deux\tlignes\n"\r\nb,c\r\n')
    corpus = ParallelCorpus.from_files(pairs=path)
    assert list(corpus.entries()) == [(2, "two lines", "deux lignes"), (5, "b", "c")]


def test_quotation_marks_in_tab_separated_text_are_text(write):
    assert pairs_in(write("t.tsv", ["en\tfr", '"Yes," he said.\t« Oui »', '"\t""'])) == [
        ('"Yes," he said.', "« Oui »"),
        ('"', '""'),
    ]


BAD_TABLES = {
    "ragged CSV": (
        b"en,fr\na,b\nc,d,e\n",
        "line 3 has 3 columns; expected 2: 'c,d,e'. Put a cell with a comma",
    ),
    "a missing cell": (b"id,en,fr\n1,b,c\n2,b\n", "line 3 has 2 columns; expected 3: '2,b'."),
    "ragged TSV": (b"en\tfr\na\tb\nc\td\te\n", r"line 3 has 3 columns; expected 2: 'c\td\te'. Add or remove tabs."),
    "after quotes": (
        b'en,fr\n"a" b,c\n',
        "line 2: there is text after a closing quotation mark. Put quotation marks around",
    ),
    "open quotes": (b'en,fr\na,b\n"c,d\ne,f\n', "line 3: a quotation mark is not closed."),
    "open quotes in a long file": (b'en,fr\n"c,d\n' + b"x" * 80 + b"\n" * 5000 * 60, "line 2: a quotation mark is not"),
    "a carriage return": (b"en,fr\na\rb,c\n", "line 2: there is a carriage return outside quotation marks"),
    "only a header": (b"en,fr\n", "there are no pairs"),
}


@pytest.mark.parametrize("case", BAD_TABLES)
def test_a_malformed_row_is_named_with_its_line(write, case):
    content, words = BAD_TABLES[case]
    assert words in refusal(write("t.csv", content))


def test_a_file_in_another_encoding_is_refused_with_the_command_that_converts_it(write):
    content = "en,de\nroad,Straße und Größe\nsteam,Dämpfe über Köln\n".encode("cp1252")
    assert "line 2, byte 15: not UTF-8; looks like Windows-1252; convert" in refusal(write("t.csv", content))


# JSON Lines


def test_keys_are_chosen_by_name_and_null_is_no_text(write):
    lines = ['{"q": "a\\nb", "a": "c", "n": 1}', "", '{"q": null, "a": "d"}']
    assert pairs_in(write("t.jsonl", lines), ("q", "a")) == [("a b", "c"), ("", "d")]


BAD_LINES = {
    "no JSON": (
        '{"en": "a", "de"}',
        "line 2 is not JSON (Expecting ':' delimiter at character 17); expected one",
    ),
    "no object": ('"text"', 'line 2 is "text"; expected an object such as {"en": "…", "fr": "…"}.'),
    "an array": (
        '[{"en": "a", "de": "b"}]',
        "line 2 is a JSON array; expected one object per line. Convert the file with `jq -c '.[]'`",
    ),
    "a missing key": ('{"en": "a", "fr": "b"}', 'line 2 has no key "de"; it has "en", "fr".'),
    "a number": ('{"en": "a", "de": 5}', 'line 2: "de" is 5; expected text.'),
    "half a character": (
        '{"en": "a", "de": "\\ud83d"}',
        r'line 2: "de" contains \ud83d, half of a character.',
    ),
    "deep": ("[" * 100_000, "line 2 is not usable JSON"),
    "digits": ('{"en": ' + "1" * 5000 + "}", "line 2 is not usable JSON"),
}


@pytest.mark.parametrize("case", BAD_LINES)
def test_a_malformed_object_is_named_with_its_line(write, case):
    line, words = BAD_LINES[case]
    assert words in refusal(write("t.jsonl", ['{"en": "a", "de": "b"}', line]))


def test_keys_that_do_not_tell_source_and_target_are_listed(write):
    assert 'line 1: source and target are not clear from the keys "a", "b".' in refusal(
        write("t.jsonl", ['{"a": "1", "b": "2"}'])
    )
    three = write("u.jsonl", ['{"translation": {"de": "1", "en": "2", "fr": "3"}}'])
    assert 'are not clear from the keys "de", "en", "fr". Choose two with --columns de,en' in refusal(three)
    assert pairs_in(three, ("en", "fr")) == [("2", "3")]


# Translation memories

DOG = variant("en-GB", "dog") + variant("de-DE", "Hund")


def test_the_source_language_of_the_header_is_the_source_whatever_comes_first(write):
    swapped = variant("de-DE", "Hund") + variant("en-GB", "dog")
    corpus = ParallelCorpus.from_files(pairs=write("t.tmx", tmx(swapped, DOG, srclang="en-GB")))
    assert list(corpus.pairs()) == [("dog", "Hund")] * 2
    assert corpus.notices() == (f'{corpus}: source is "en" and target is "de".',)
    english = variant("en-GB", "colour") + variant("en-US", "color")
    assert pairs_in(write("u.tmx", tmx(english, srclang="en-us"))) == [("color", "colour")]


def test_languages_are_chosen_with_or_without_their_regions(write):
    unit = (
        variant("en-US", "color") + variant("en", "colour (any)") + variant("en-GB", "colour") + variant("DE-at", "F")
    )
    path = write("t.tmx", tmx(unit, srclang="*all*"))
    assert pairs_in(path, ("en", "de")) == [("colour (any)", "F")]
    assert pairs_in(path, ("de_AT", "en-gb")) == [("F", "colour")]


def test_units_without_the_pair_are_skipped_and_counted(write):
    french = variant("en", "cat") + variant("fr", "chat")
    corpus = ParallelCorpus.from_files(pairs=write("t.tmx", tmx(DOG, french, DOG, "")), languages=("en", "de"))
    assert list(corpus.pairs()) == [("dog", "Hund")] * 2
    assert corpus.notices() == (f'{corpus}: skipped 2 of 4 units, which lack "en" or "de".',)


def test_text_in_inline_elements_is_kept_and_codes_are_dropped(write):
    segment = (
        'Press <bpt i="1">&lt;b&gt;</bpt>Enter<ept i="1">&lt;/b&gt;</ept> or <hi type="x">the <hi>big</hi> key</hi>'
        '<ph x="1">{0}<sub>note</sub></ph>, <it pos="begin">\\i</it><ut>code</ut>now<![CDATA[ <ok>]]><!-- no -->&#33;'
    )
    path = write("t.tmx", tmx(variant("en", segment) + variant("de", "\n    Drücke\n    Enter\n  ")))
    assert pairs_in(path) == [("Press Enter or the big key, now <ok>!", "Drücke Enter")]


def test_old_files_with_lang_a_document_type_and_notes_are_read(write):
    unit = (
        '<note>a note</note><prop type="p">prop</prop><tuv lang="EN-US"><prop type="p">x</prop><seg>dog</seg></tuv>'
        '<tuv lang="DE"><seg>H&#252;nd</seg></tuv>'
    )
    doctype = '<!DOCTYPE tmx SYSTEM "http://example.com/tmx11.dtd">\n'
    assert pairs_in(write("t.tmx", tmx(unit, srclang="EN-US", doctype=doctype))) == [("dog", "Hünd")]
    latin = tmx(unit).decode().replace('"1.0"', '"1.0" encoding="windows-1252"').encode("cp1252")
    assert pairs_in(write("u.tmx", latin)) == [("dog", "Hünd")]


LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
BAD_MEMORIES = {
    "billion laughs": (
        tmx(variant("en", "&l9;"), doctype=f'<!DOCTYPE tmx [<!ENTITY l0 "ha">{LAUGHS}]>\n'),
        "line 2: the file declares an entity (l0), which is refused",
    ),
    "an external entity": (
        tmx(variant("en", "&x;"), doctype='<!DOCTYPE tmx [<!ENTITY x SYSTEM "file:///etc/passwd">]>\n'),
        "line 2: the file declares an entity (x), which is refused",
    ),
    "a parameter entity": (
        tmx(DOG, doctype='<!DOCTYPE tmx [<!ENTITY % x SYSTEM "http://example.com/"> %x;]>\n'),
        "line 2: the file declares an entity (x), which is refused",
    ),
    "an undefined entity": (
        tmx(variant("en", "a&nbsp;b"), doctype='<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n'),
        "line 4: the file uses an entity that is not defined (nbsp), which is refused",
    ),
    "a mistake in the XML": (tmx(DOG, "<note></seg>"), "line 4, column 13: not well-formed XML (mismatched tag)."),
    "half a file": (tmx(DOG, DOG)[:150], "not well-formed XML ("),
    "a variant without language": (tmx(DOG, "<tuv><seg>a</seg></tuv>"), "line 4: a variant (<tuv>) has no language;"),
    "a variant without segment": (tmx(DOG, '<tuv xml:lang="en"></tuv>'), "line 4: a variant (<tuv>) has no segment"),
    "two segments": (
        tmx('<tuv lang="en"><seg>a</seg><seg>b</seg></tuv>'),
        "line 3: a variant (<tuv>) has two seg",
    ),
    "a unit in a unit": (tmx(f"<tu>{DOG}</tu>"), "line 3: a unit (<tu>) inside a unit."),
    "no unit": (tmx(), "the translation memory has no units (<tu>)."),
    "one language": (tmx(variant("en", "a")), "no unit has two languages; the languages are en."),
    "an unknown source": (tmx(DOG, srclang="*all*"), 'line 3: the source language of the header (srclang) is "*all*"'),
    "three in a unit": (tmx(DOG + variant("fr", "a")), "the unit has 3 languages: en-GB, de-DE, fr. Choose two with"),
    "a third": (
        tmx(DOG, variant("en", "a") + variant("fr", "b")),
        "line 4: the unit has a third language, fr, beside",
    ),
    "an unknown encoding": (
        tmx(DOG).replace(b'"1.0"', b'"1.0" encoding="x"', 1),
        "its encoding cannot be read (",
    ),
}


@pytest.mark.parametrize("case", BAD_MEMORIES)
def test_a_malformed_memory_is_refused_with_its_line(write, case):
    content, words = BAD_MEMORIES[case]
    assert words in refusal(write("t.tmx", content))


def test_languages_that_no_unit_has_are_listed(write):
    message = refusal(write("t.tmx", tmx(DOG)), ("en", "fr"))
    assert message == ': no unit has both "en" and "fr"; the languages are en-GB, de-DE.'


def test_a_unit_of_gigabytes_is_refused(write, monkeypatch):
    monkeypatch.setattr("dragoman.data.tmx.MAX_LINE_BYTES", 1000)
    assert "line 3: the unit has more than 1,000 characters" in refusal(write("t.tmx", tmx(variant("en", "a" * 2000))))


def test_a_memory_larger_than_memory_is_read_in_little_of_it(tmp_path):
    path = tmp_path / "large.tmx.gz"
    first, last = tmx(DOG).split(b"<tu>")[0], b"</body></tmx>"
    unit = f"<tu>{variant('en', 'a word ' * 500)}{variant('de', 'ein Wort ' * 500)}</tu>\n".encode()
    count = (20 << 20) // len(unit)
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(first)
        for _ in range(count):
            file.write(unit)
        file.write(last)
    corpus = ParallelCorpus.from_files(pairs=path)
    tracemalloc.start()
    try:
        assert corpus.count_pairs() == count
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
