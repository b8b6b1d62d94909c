"""The page that describes the API: plain HTML made from openapi.json, without scripts and without a CDN."""

from html import escape
from typing import Any


def render_api_docs(description: dict[str, Any]) -> str:
    """Return the page."""
    routes = [
        _render_route(method.upper(), path, operation)
        for path, methods in description["paths"].items()
        for method, operation in methods.items()
    ]
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Dragoman: the API</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="stylesheet" href="page/page.css"><main><h1>Dragoman: the API</h1>'
        '<p>For programs: <a href="openapi.json">openapi.json</a>. Errors are '
        "<code>{error, code, field, request_id}</code>; 429 and 503 say in <code>Retry-After</code> when to try "
        "again.</p>" + "".join(routes) + "</main></html>"
    )


def _render_route(method: str, path: str, operation: dict[str, Any]) -> str:
    """Return the part about one route."""
    body: dict[str, Any] = operation.get("requestBody", {}).get("content", {})
    schema: dict[str, Any] = next((kind["schema"] for kind in body.values()), {})
    fields = "".join(
        _render_field(name, about, name in schema.get("required", ())) for name, about in _schema_properties(schema)
    )
    table = f"<table><tr><th>field<th>what it is<th>default</tr>{fields}</table>" if fields else ""
    sent = f"<p>Sent as {' or '.join(f'<code>{escape(kind)}</code>' for kind in body)}.</p>" if body else ""
    return (
        f"<h2><code>{method} {escape(path)}</code></h2><p>{escape(operation.get('description', ''))}</p>{sent}{table}"
    )


def _schema_properties(schema: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return the fields of a body."""
    return list(schema.get("properties", {}).items())


def _render_field(name: str, schema: dict[str, Any], required: bool) -> str:
    """Return a row of the table of fields."""
    default = "required" if required else escape(str(schema.get("default")))
    return f"<tr><td><code>{escape(name)}</code><td>{escape(schema.get('description', ''))}<td>{default}</tr>"
