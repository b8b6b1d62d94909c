"""LibreTranslate's API, so that its clients work unchanged: its fields, its answers, its status codes."""

from collections.abc import Sequence
from typing import Any

from dragoman.server.languages import name_of
from dragoman.server.markup import Page, taken_apart
from dragoman.server.problems import Problem
from dragoman.server.schemas import LibreRequest
from dragoman.server.service import Service
from dragoman.server.texts import Layout, laid_out

TYPING_MILLISECONDS = 500  # that their page waits after the last key


async def translate(service: Service, asked: LibreRequest) -> dict[str, Any]:
    """Answer `POST /translate`."""
    texts = [asked.q] if isinstance(asked.q, str) else asked.q
    service.check_lengths(texts)
    detected = await detected_in(service, texts[0]) if asked.source == "auto" else None
    model = chosen(service, detected["language"] if detected else asked.source, asked.target)
    parts: list[Page | Layout] = [taken_apart(text) if asked.format == "html" else laid_out(text) for text in texts]
    sentences = [sentence for part in parts for sentence in part.sentences]
    found = await service.asked("translate", model, sentences, n_best=asked.alternatives + 1) if sentences else []
    rest = iter(found)
    ranked = [best_of(part, [next(rest) for _ in part.sentences], asked.alternatives + 1) for part in parts]
    return shaped(ranked, several=not isinstance(asked.q, str), asked=asked, detected=detected)


def best_of(part: Page | Layout, found: Sequence[Sequence[dict[str, Any]]], count: int) -> list[str]:
    """Return so many different translations of one text, the best first; fewer if there are fewer."""
    ranked = [part.filled([row[min(rank, len(row) - 1)]["text"] for row in found]) for rank in range(count)]
    return list(dict.fromkeys(ranked))


def shaped(
    ranked: list[list[str]], *, several: bool, asked: LibreRequest, detected: dict[str, Any] | None
) -> dict[str, Any]:
    """Return an answer in their shape."""
    best, others = [row[0] for row in ranked], [row[1:] for row in ranked]
    answer: dict[str, Any] = {"translatedText": best if several else best[0]}
    if asked.alternatives:
        answer["alternatives"] = others if several else others[0]
    if detected:
        answer["detectedLanguage"] = [detected] * len(ranked) if several else detected
    return answer


def chosen(service: Service, source: str, target: str) -> dict[str, Any]:
    """Return the model for a pair of languages; theirs is a 400 where ours is a 404."""
    field = "source"
    try:
        model = service.model(source=source, target=target)
        if model["languages"]:
            return model
    except Problem as problem:
        field = problem.field or field
    raise Problem(400, "unknown", "This language is not supported.", field=field)


async def detected_in(service: Service, text: str) -> dict[str, Any]:
    """Return the language that a text is most likely in."""
    found = await service.detect(text)
    if not found:
        raise Problem(400, "unknown", "No translator is served here.", field="source")
    return found[0]


def languages(service: Service) -> list[dict[str, Any]]:
    """Answer `GET /languages`: each language that is translated from, and what it is translated into."""
    targets: dict[str, list[str]] = {}
    for model in service.translators:
        listed = targets.setdefault(model["source"], [])
        if model["target"] not in listed:
            listed.append(model["target"])
    for model in service.translators:  # their clients look up the target here too
        targets.setdefault(model["target"], [])
    return [{"code": code, "name": name_of(code), "targets": listed} for code, listed in targets.items()]


def settings(service: Service, *, key_required: bool) -> dict[str, Any]:
    """Answer `GET /frontend/settings`."""
    first = next(iter(service.translators), {"source": "", "target": ""})
    pair = {side: {"code": first[side], "name": name_of(first[side])} for side in ("source", "target")}
    return {
        "apiKeys": key_required, "charLimit": service.limits.text_characters, "filesTranslation": False,
        "frontendTimeout": TYPING_MILLISECONDS, "keyRequired": key_required, "language": pair, "suggestions": False,
        "supportedFilesFormat": [],
    }  # fmt: skip
