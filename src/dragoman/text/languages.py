"""Languages: their names by code, and which of the names of a file's columns, keys or languages are meant."""

import re
import shlex
from collections.abc import Sequence

from dragoman.errors import UserError, did_you_mean

Languages = tuple[str, str]  # of source and target

# ISO 639-1, and languages of widely used parallel corpora.
LANGUAGE_NAMES = {
    "af": "Afrikaans", "am": "Amharic", "ar": "Arabic", "az": "Azerbaijani", "be": "Belarusian", "bg": "Bulgarian",
    "bn": "Bengali", "br": "Breton", "bs": "Bosnian", "ca": "Catalan", "cs": "Czech", "cy": "Welsh", "da": "Danish",
    "de": "German", "el": "Greek", "en": "English", "eo": "Esperanto", "es": "Spanish", "et": "Estonian",
    "eu": "Basque", "fa": "Persian", "fi": "Finnish", "fo": "Faroese", "fr": "French", "fy": "West Frisian",
    "ga": "Irish", "gd": "Scottish Gaelic", "gl": "Galician", "gn": "Guarani", "gu": "Gujarati", "ha": "Hausa",
    "he": "Hebrew", "hi": "Hindi", "hr": "Croatian", "hsb": "Upper Sorbian", "ht": "Haitian Creole",
    "hu": "Hungarian", "hy": "Armenian", "id": "Indonesian", "ig": "Igbo", "is": "Icelandic", "it": "Italian",
    "ja": "Japanese", "jv": "Javanese", "ka": "Georgian", "kk": "Kazakh", "km": "Khmer", "kn": "Kannada",
    "ko": "Korean", "ku": "Kurdish", "ky": "Kyrgyz", "la": "Latin", "lb": "Luxembourgish", "lo": "Lao",
    "lt": "Lithuanian", "lv": "Latvian", "mg": "Malagasy", "mi": "Māori", "mk": "Macedonian", "ml": "Malayalam",
    "mn": "Mongolian", "mr": "Marathi", "ms": "Malay", "mt": "Maltese", "my": "Burmese", "nb": "Norwegian Bokmål",
    "ne": "Nepali", "nl": "Dutch", "nn": "Norwegian Nynorsk", "no": "Norwegian", "oc": "Occitan", "pa": "Punjabi",
    "pl": "Polish", "ps": "Pashto", "pt": "Portuguese", "qu": "Quechua", "rm": "Romansh", "ro": "Romanian",
    "ru": "Russian", "rw": "Kinyarwanda", "se": "Northern Sami", "si": "Sinhala", "sk": "Slovak", "sl": "Slovenian",
    "so": "Somali", "sq": "Albanian", "sr": "Serbian", "sv": "Swedish", "sw": "Swahili", "ta": "Tamil",
    "te": "Telugu", "tg": "Tajik", "th": "Thai", "tk": "Turkmen", "tl": "Tagalog", "tr": "Turkish", "tt": "Tatar",
    "ug": "Uyghur", "uk": "Ukrainian", "ur": "Urdu", "uz": "Uzbek", "vi": "Vietnamese", "xh": "Xhosa",
    "yi": "Yiddish", "yo": "Yoruba", "zh": "Chinese", "zu": "Zulu",
}  # fmt: skip

_LANGUAGE_TAG = re.compile(r"([A-Za-z]{2,3})(?:[-_][A-Za-z0-9]{2,8})*")  # en, en-GB, zh_Hans_CN
_USUAL_NAMES = (("source", "target"), ("src", "tgt"), ("src", "trg"))


def language_name(code: str) -> str:
    """Return the English name of a language; for an unknown code, the code itself."""
    return LANGUAGE_NAMES.get(code.lower().split("-")[0], code)


def _is_language_tag(name: str) -> bool:
    """Return whether a name is the code of a known language, with or without a region."""
    match = _LANGUAGE_TAG.fullmatch(name)
    return match is not None and match[1].lower() in LANGUAGE_NAMES


def primary_language(tag: str) -> str:
    """Return the language of a tag without its region: en for en-GB."""
    return tag.replace("_", "-").partition("-")[0].lower()


def matches_language(tag: str, wanted: str) -> bool:
    """Return whether a tag is the one that is wanted, or adds a region to it: en-GB matches en, en does not en-GB."""
    have, want = (text.replace("_", "-").lower() for text in (tag, wanted))
    return have == want or (have.startswith(f"{want}-") and bool(_LANGUAGE_TAG.fullmatch(tag)))


def guess_names(names: Sequence[str]) -> Languages | None:
    """Return the names of source and target if exactly two are language codes, or are usual names; otherwise None."""
    tags = [name for name in names if _is_language_tag(name)]
    if len(tags) > 2:
        tags = [tag for tag in tags if tag.lower() != "id"]  # a column of identifiers rather than Indonesian
    if len(tags) == 2:
        return tags[0], tags[1]
    return next((pair for pair in _USUAL_NAMES if set(pair) <= set(names)), None)


def choose_names(names: Sequence[str], languages: Languages | None, where: str, noun: str) -> Languages:
    """Return the names of source and target among the names of columns or keys; raise an error if they are not clear.

    `where` begins an error message: the file and the line.
    """
    listed = ", ".join(f'"{name}"' for name in names)
    if languages:
        source, target = (_find_name(names, wanted, where, noun, listed) for wanted in languages)
        return source, target
    guess = guess_names(names)
    if guess is None:
        raise UserError(f"{where}: source and target are not clear from the {noun}s {listed}. {columns_hint(names)}")
    return guess


def columns_hint(names: Sequence[str]) -> str:
    """Return how to choose two of the names."""
    tags = [name for name in names if _is_language_tag(name) and name.lower() != "id"]
    first, second = tags[:2] if len(tags) > 1 else names[-2:] if len(names) > 1 else ("en", "fr")
    option = shlex.quote(f"{first},{second}")
    return f'Choose two with --columns {option} (in a recipe: languages = ["{first}", "{second}"]).'


def _find_name(names: Sequence[str], wanted: str, where: str, noun: str, listed: str) -> str:
    exact = [name for name in names if name == wanted] or [name for name in names if name.lower() == wanted.lower()]
    matching = exact or [name for name in names if matches_language(name, wanted)]
    if not matching:
        raise UserError(f'{where}: no {noun} "{wanted}"; found {listed}.{did_you_mean(wanted, names)}')
    if len(matching) > 1:
        raise UserError(f'{where}: several {noun}s match "{wanted}": {", ".join(matching)}. Name one of them.')
    return matching[0]
