"""LibreTranslate's API, so that its clients work unchanged: its fields, responses and status codes."""

import html
import json
import re
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException

from dragoman.server.access import AccessPolicy, token_required
from dragoman.server.limits import RouteLimits
from dragoman.server.problems import Problem
from dragoman.server.schemas import (
    DetectedLanguage,
    DetectRequest,
    LibreLanguage,
    LibreTranslateRequest,
    LibreTranslateResponse,
    error_responses,
    json_response,
    validation_problem,
)
from dragoman.server.service import Service, TranslationService, split_for
from dragoman.text.languages import language_name
from dragoman.text.sentences import SegmentedText, split_sentences

_FRONTEND_TIMEOUT_MILLISECONDS = 500  # that LibreTranslate's page waits after the last key
_MAX_FIELDS = 200
_JSON, _URLENCODED, _MULTIPART = "application/json", "application/x-www-form-urlencoded", "multipart/form-data"

_TAG = re.compile(r"<[/!?a-zA-Z][^<>]*>")
_UNTRANSLATED_ELEMENT = re.compile(r"<(script|style|code|pre)\b", re.IGNORECASE)

_Schema = TypeVar("_Schema", bound=BaseModel)
router = APIRouter()


# ---- requests: JSON or a form, with the token in the field api_key


async def _read_fields(request: Request) -> dict[str, Any]:
    """Return the fields of the query and of the body; a repeated field is a list. Refuse a missing or wrong token."""
    access: AccessPolicy = request.app.state.access
    try:
        fields = {**_group_fields(request.query_params.multi_items()), **await _read_body(request)}
    except HTTPException:
        if not request.state.is_authorized:
            raise token_required() from None
        raise
    api_key = fields.get("api_key")
    key = api_key.encode("utf-8", "replace") if isinstance(api_key, str) else b""
    if not request.state.is_authorized and not access.matches_token(key):
        raise token_required()
    return fields


async def _read_body(request: Request) -> dict[str, Any]:
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    body = await request.body() if content_type in ("", _JSON) else b""
    if content_type == _JSON or body.startswith(b"{"):
        try:
            fields = json.loads(body)
        except (ValueError, RecursionError):
            raise Problem(400, "not_json", "The body is not valid JSON.") from None
        if not isinstance(fields, dict):
            raise Problem(400, "not_json", "The body must be a JSON object.")
        return fields
    if content_type in (_URLENCODED, _MULTIPART):
        form = await request.form(max_files=0, max_fields=_MAX_FIELDS)
        return _group_fields([(name, value) for name, value in form.multi_items() if isinstance(value, str)])
    if body or content_type:
        raise Problem(415, "content_type", f"The Content-Type must be {_JSON}, {_URLENCODED} or {_MULTIPART}.")
    return {}


def _group_fields(items: Sequence[tuple[str, str]]) -> dict[str, Any]:
    grouped: dict[str, list[str]] = {}
    for name, value in items:
        grouped.setdefault(name, []).append(value)
    return {name: values if len(values) > 1 else values[0] for name, values in grouped.items()}


Fields = Annotated[dict[str, Any], Depends(_read_fields)]


def _validator_for(schema: type[_Schema]) -> Callable[[dict[str, Any]], Coroutine[Any, Any, _Schema]]:
    """Return a dependency that validates the fields; LibreTranslate's status for invalid ones is 400."""

    async def validate(fields: Fields) -> _Schema:
        try:
            return schema.model_validate(fields)
        except ValidationError as error:
            details = error.errors(include_url=False, include_context=False, include_input=False)
            raise validation_problem(details, 400) from None

    return validate


def _request_body(schema: type[BaseModel]) -> dict[str, Any]:
    json_schema = {"schema": schema.model_json_schema(ref_template="#/components/schemas/{model}")}
    return {"requestBody": {"required": True, "content": {_JSON: json_schema, _URLENCODED: json_schema}}}


# ---- routes


@router.post(
    "/translate",
    responses={200: {"model": LibreTranslateResponse}, **error_responses(404, body=True)},
    openapi_extra=_request_body(LibreTranslateRequest),
)
async def libre_translate(
    body: Annotated[LibreTranslateRequest, Depends(_validator_for(LibreTranslateRequest))], service: Service
) -> Response:
    """Translate one or several texts, as LibreTranslate does."""
    return json_response(await translate(service, body), service.limits)


@router.post(
    "/detect",
    responses={200: {"model": list[DetectedLanguage]}, **error_responses(404, body=True)},
    openapi_extra=_request_body(DetectRequest),
)
async def libre_detect(
    body: Annotated[DetectRequest, Depends(_validator_for(DetectRequest))], service: Service
) -> Response:
    """Rank the served source languages for a text."""
    return json_response(await service.detect_language(body.q), service.limits)


@router.get("/languages", responses={200: {"model": list[LibreLanguage]}, **error_responses()})
async def libre_languages(service: Service, _fields: Fields) -> Response:
    """List the source languages and the targets of each, as LibreTranslate does."""
    return json_response(languages(service), service.limits)


@router.get("/frontend/settings", responses={200: {"model": dict[str, Any]}, **error_responses()})
async def libre_settings(request: Request, service: Service, _fields: Fields) -> Response:
    """Return the settings that LibreTranslate's page reads."""
    settings = _frontend_settings(service, key_required=request.app.state.access.needs_token)
    return json_response(settings, service.limits)


def route_limits(default: RouteLimits) -> Mapping[str, RouteLimits]:
    """Return the limits of these routes; the middleware leaves the check of `api_key` to `_read_fields`."""
    with_key = replace(default, accepts_api_key=True)
    queued = replace(with_key, is_queued=True)
    return {"/translate": queued, "/detect": queued, "/languages": with_key, "/frontend/settings": with_key}


# ---- HTML: tags, comments, scripts and code are kept as they are


@dataclass(frozen=True)
class SegmentedHtml:
    """HTML split into texts and the tags before, between and after them."""

    texts: tuple[SegmentedText, ...]
    tags: tuple[str, ...]  # one more than texts

    @property
    def sentences(self) -> tuple[str, ...]:
        """The sentences to translate."""
        return tuple(sentence for text in self.texts for sentence in text.sentences)

    def fill(self, translations: Sequence[str]) -> str:
        """Return the HTML with translations instead of the sentences, escaped as text."""
        remaining = iter(translations)
        parts = [self.tags[0]]
        for text, tag in zip(self.texts, self.tags[1:], strict=True):
            filled = text.fill([next(remaining) for _ in text.sentences])
            parts += [html.escape(filled, quote=False), tag]
        return "".join(parts)


def split_html(page: str, split: Callable[[str], SegmentedText] = split_sentences) -> SegmentedHtml:
    """Split HTML into texts and tags, and each text by `split`."""
    texts, tags, first = [], [""], 0
    for start, end in [*_tag_spans(page), (len(page), len(page))]:
        if start > first:
            texts.append(split(html.unescape(page[first:start])))
            tags.append("")
        tags[-1] += page[start:end]
        first = end
    return SegmentedHtml(tuple(texts), tuple(tags))


def _tag_spans(page: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each tag, comment, and element whose text is not translated."""
    lowered, start = page.lower(), 0
    while (start := page.find("<", start)) >= 0:
        end = _tag_end(page, lowered, start)
        if end > start:
            yield start, end
        start = max(end, start + 1)


def _tag_end(page: str, lowered: str, start: int) -> int:
    """Return the end of what begins at this "<"; 0 if it is an ordinary character."""
    if page.startswith("<!--", start):
        return page.find("-->", start) + 3 if "-->" in page[start:] else 0
    tag = _TAG.match(page, start)
    if element := _UNTRANSLATED_ELEMENT.match(page, start):
        close = lowered.find(f"</{element[1].lower()}", start)
        return page.find(">", close) + 1 if close >= 0 else tag.end() if tag else 0
    return tag.end() if tag else 0


# ---- answers


async def translate(service: TranslationService, request: LibreTranslateRequest) -> dict[str, Any]:
    """Answer `POST /translate`."""
    texts = [request.q] if isinstance(request.q, str) else request.q
    service.check_lengths(texts)
    service.check_numbers(q=len(texts), alternatives=request.alternatives)
    detected = await _detect_language(service, texts[0]) if request.source == "auto" else None
    model = _find_model(service, detected["language"] if detected else request.source, request.target)
    count = request.alternatives + 1
    split: Callable[[str], SegmentedHtml | SegmentedText] = partial(split_for, model)
    if request.format == "html":
        split = partial(split_html, split=partial(split_for, model))
    merge = partial(_distinct_translations, count=count)
    ranked = await service.translate_split(model, texts, split, merge, n_best=count)
    best, others = [row[0] for row in ranked], [row[1:] for row in ranked]
    is_list = not isinstance(request.q, str)
    response: dict[str, Any] = {"translatedText": best if is_list else best[0]}
    if request.alternatives:
        response["alternatives"] = others if is_list else others[0]
    if detected:
        response["detectedLanguage"] = [detected] * len(ranked) if is_list else detected
    return response


def _distinct_translations(
    text: SegmentedHtml | SegmentedText, sentences: Sequence[Sequence[dict[str, Any]]], count: int
) -> list[str]:
    ranked = [text.fill([row[min(rank, len(row) - 1)]["text"] for row in sentences]) for rank in range(count)]
    return list(dict.fromkeys(ranked))


def _find_model(service: TranslationService, source: str, target: str) -> dict[str, Any]:
    """Return the model for a language pair; LibreTranslate's status for an unknown one is 400."""
    field = "source"
    try:
        model = service.find_model(source=source, target=target)
        if model["has_language_pair"]:
            return model
    except Problem as problem:
        field = problem.field or field
    raise Problem(400, "unknown", "This language is not supported.", field=field)


async def _detect_language(service: TranslationService, text: str) -> dict[str, Any]:
    ranked = await service.detect_language(text)
    if not ranked:
        raise Problem(400, "unknown", "This server has no translation model.", field="source")
    return ranked[0]


def languages(service: TranslationService) -> list[dict[str, Any]]:
    """Answer `GET /languages`."""
    targets: dict[str, list[str]] = {}
    for model in service.translators:
        known = targets.setdefault(model["source"], [])
        if model["target"] not in known:
            known.append(model["target"])
    for model in service.translators:  # clients look up the target here too
        targets.setdefault(model["target"], [])
    return [{"code": code, "name": language_name(code), "targets": codes} for code, codes in targets.items()]


def _frontend_settings(service: TranslationService, *, key_required: bool) -> dict[str, Any]:
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
