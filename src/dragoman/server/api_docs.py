"""The page that describes the API: plain HTML made from openapi.json, without scripts and without a CDN."""

from html import escape
from typing import Any


def render_api_docs(description: dict[str, Any]) -> str:
    """Return the page as HTML."""
    schemas = description.get("components", {}).get("schemas", {})
    routes = [
        _render_route(method.upper(), path, operation, schemas)
        for path, methods in description["paths"].items()
        for method, operation in methods.items()
    ]
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Dragoman API</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="stylesheet" href="server/page/page.css"><main><h1>Dragoman API</h1>'
        '<p>Machine-readable: <a href="openapi.json">openapi.json</a>. Errors are '
        "<code>{error, code, field, request_id}</code>; 429 and 503 have a <code>Retry-After</code> header.</p>"
        + "".join(routes)
        + "</main></html>"
    )


def _render_route(method: str, path: str, operation: dict[str, Any], schemas: dict[str, Any]) -> str:
    content: dict[str, Any] = operation.get("requestBody", {}).get("content", {})
    schema: dict[str, Any] = next((body["schema"] for body in content.values()), {})
    if "$ref" in schema:
        schema = schemas[schema["$ref"].rpartition("/")[2]]
    required = schema.get("required", ())
    rows = "".join(
        _render_field(name, field, name in required)
        for name, field in schema.get("properties", {}).items()
        if not field.get("deprecated")
    )
    table = f"<table><tr><th>field<th>description<th>default</tr>{rows}</table>" if rows else ""
    formats = " or ".join(f"<code>{escape(name)}</code>" for name in content)
    body = f"<p>Body: {formats}.</p>" if content else ""
    description = escape(operation.get("description", ""))
    return f"<h2><code>{method} {escape(path)}</code></h2><p>{description}</p>{body}{table}"


def _render_field(name: str, schema: dict[str, Any], required: bool) -> str:
    default = "required" if required else escape(str(schema.get("default")))
    return f"<tr><td><code>{escape(name)}</code><td>{escape(schema.get('description', ''))}<td>{default}</tr>"
