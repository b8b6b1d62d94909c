"""LibreTranslate's API, so that its clients work unchanged: its fields, its answers, its status codes."""

from collections.abc import Sequence
from typing import Any

from dragoman.server.html import SegmentedHtml, split_html
from dragoman.server.languages import language_name
from dragoman.server.problems import Problem
from dragoman.server.schemas import LibreTranslateRequest
from dragoman.server.segmentation import SegmentedText, split_text
from dragoman.server.service import TranslationService

_FRONTEND_TIMEOUT_MILLISECONDS = 500  # that their page waits after the last key


async def translate(service: TranslationService, request: LibreTranslateRequest) -> dict[str, Any]:
    """Answer `POST /translate`."""
    texts = [request.q] if isinstance(request.q, str) else request.q
    service.check_lengths(texts)
    detected = await _detect_language(service, texts[0]) if request.source == "auto" else None
    model = _find_model(service, detected["language"] if detected else request.source, request.target)
    parts: list[SegmentedHtml | SegmentedText] = [
        split_html(text) if request.format == "html" else split_text(text) for text in texts
    ]
    sentences = [sentence for part in parts for sentence in part.sentences]
    found = (
        await service.run_operation("translate", model, sentences, n_best=request.alternatives + 1) if sentences else []
    )
    rest = iter(found)
    ranked = [
        _distinct_translations(part, [next(rest) for _ in part.sentences], request.alternatives + 1) for part in parts
    ]
    return _format_response(ranked, several=not isinstance(request.q, str), request=request, detected=detected)


def _distinct_translations(
    part: SegmentedHtml | SegmentedText, found: Sequence[Sequence[dict[str, Any]]], count: int
) -> list[str]:
    """Return so many different translations of one text, the best first; fewer if there are fewer."""
    ranked = [part.fill([row[min(rank, len(row) - 1)]["text"] for row in found]) for rank in range(count)]
    return list(dict.fromkeys(ranked))


def _format_response(
    ranked: list[list[str]], *, several: bool, request: LibreTranslateRequest, detected: dict[str, Any] | None
) -> dict[str, Any]:
    """Return an answer in their shape."""
    best, others = [row[0] for row in ranked], [row[1:] for row in ranked]
    answer: dict[str, Any] = {"translatedText": best if several else best[0]}
    if request.alternatives:
        answer["alternatives"] = others if several else others[0]
    if detected:
        answer["detectedLanguage"] = [detected] * len(ranked) if several else detected
    return answer


def _find_model(service: TranslationService, source: str, target: str) -> dict[str, Any]:
    """Return the model for a pair of languages; theirs is a 400 where ours is a 404."""
    field = "source"
    try:
        model = service.find_model(source=source, target=target)
        if model["languages"]:
            return model
    except Problem as problem:
        field = problem.field or field
    raise Problem(400, "unknown", "This language is not supported.", field=field)


async def _detect_language(service: TranslationService, text: str) -> dict[str, Any]:
    """Return the language that a text is most likely in."""
    found = await service.detect_language(text)
    if not found:
        raise Problem(400, "unknown", "No translator is served here.", field="source")
    return found[0]


def languages(service: TranslationService) -> list[dict[str, Any]]:
    """Answer `GET /languages`: each language that is translated from, and what it is translated into."""
    targets: dict[str, list[str]] = {}
    for model in service.translators:
        listed = targets.setdefault(model["source"], [])
        if model["target"] not in listed:
            listed.append(model["target"])
    for model in service.translators:  # their clients look up the target here too
        targets.setdefault(model["target"], [])
    return [{"code": code, "name": language_name(code), "targets": listed} for code, listed in targets.items()]


def frontend_settings(service: TranslationService, *, key_required: bool) -> dict[str, Any]:
    """Answer `GET /frontend/settings`."""
    first = next(iter(service.translators), {"source": "", "target": ""})
    pair = {side: {"code": first[side], "name": language_name(first[side])} for side in ("source", "target")}
    return {
        "apiKeys": key_required,
        "charLimit": service.limits.text_characters,
        "filesTranslation": False,
        "frontendTimeout": _FRONTEND_TIMEOUT_MILLISECONDS,
        "keyRequired": key_required,
        "language": pair,
        "suggestions": False,
        "supportedFilesFormat": [],
    }
