"""Names of languages by code, and the languages of a run by the names of its files."""

import re
from pathlib import PurePath

# ISO 639-1, and languages of widely used parallel corpora.
_LANGUAGE_NAMES = {
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

_LANGUAGE_PAIR = re.compile(r"(?<![a-z])([a-z]{2,3})[-_.]([a-z]{2,3})(?![a-z])")


def language_name(code: str) -> str:
    """Return the English name of a language; for an unknown code, the code itself."""
    return _LANGUAGE_NAMES.get(code.lower().split("-")[0], code)


def guess_languages(source: str | None, target: str | None, pairs: str | None, run: str) -> tuple[str, str]:
    """Return the language codes in file names: `train.en` and `train.de`, `news.cs-en.tsv`, or the run's own name."""
    left, right = _language_suffix(source), _language_suffix(target)
    if left and right and left != right:
        return left, right
    for text in (PurePath(pairs or "").name, run):
        for first, second in _LANGUAGE_PAIR.findall(text.lower()):
            if first in _LANGUAGE_NAMES and second in _LANGUAGE_NAMES and first != second:
                return first, second
    return "source", "target"


def _language_suffix(path: str | None) -> str | None:
    suffix = PurePath((path or "").removesuffix(".gz")).suffix.removeprefix(".").lower()
    return suffix if suffix in _LANGUAGE_NAMES or suffix in ("source", "target") else None
