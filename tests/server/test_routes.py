"""D3, D11, D12 for every route of the service and of the live page; a route that is added joins by itself."""

import asyncio
import json

import pytest
from http_servers import PATIENT, listening, read_response

from dragoman.server.access import AccessPolicy
from dragoman.server.app import build_app as build_service
from dragoman.watch.app import build_app as build_live_page

TOKEN = "correct-horse-battery"


@pytest.fixture(params=["service", "live page"])
def app(request, run):
    return build_service(None, AccessPolicy(TOKEN)) if request.param == "service" else build_live_page(run)


def routes_of(app):
    """Return method and path of every route; `openapi.json` and files of pages are among them."""
    found, pending = [("GET", "/nowhere")], list(app.routes)
    while pending:
        route = pending.pop()
        methods = getattr(route, "methods", None)
        pending += [] if methods else getattr(getattr(route, "original_router", None), "routes", [])
        path = route.path.replace("{step:int}", "4") if hasattr(route, "path") else ""
        found += [(method, path) for method in sorted(methods or ()) if method != "HEAD"]
        found += [("GET", f"{path}/nothing.js")] if not methods and path else []
    return found


def walk(app, *fields, method=None, body=b"", token=None):
    """Send a request to every route; return status, headers and JSON of each answer by method and path."""

    async def ask_all():
        async with listening(PATIENT, token, app) as server, asyncio.timeout(60):
            answers = {}
            for known, path in routes_of(app):
                head = f"{method or known} {path} HTTP/1.1".encode()
                reader, writer = await server.connect(b"\r\n".join([head, *fields, b"", body]))
                status, headers, content = await read_response(reader)
                answers[known, path] = status, headers, json.loads(content)
                writer.close()
            return answers

    return asyncio.run(ask_all())


def test_the_table_of_routes_is_found(app):
    found = routes_of(app)
    assert len(found) > 7
    assert {path for _, path in found} & {"/v1/translate", "/samples/4"}


@pytest.mark.parametrize("field", [b"X: y", b"Authorization: Bearer wrong", b"Authorization: Basic bWU6d3Jvbmc="])
def test_every_route_requires_the_token(app, field):
    body = b'{"q": "a", "target": "de"}'
    length = b"Content-Length: %d" % len(body)
    answers = walk(app, b"Host: localhost", field, b"Content-Type: application/json", length, body=body, token=TOKEN)
    if any(path == "/summary" for _, path in answers):  # without a body: the live page takes none
        answers = walk(app, b"Host: localhost", field, token=TOKEN)
    assert {status for status, _, _ in answers.values()} == {401}


REFUSED = {
    "another site's name": ([b"Host: evil.example"], 421),
    "another site's page": ([b"Host: localhost", b"Origin: http://evil.example"], 403),
    "no Host": ([b"X: y"], 400),
    "two Hosts": ([b"Host: localhost", b"Host: localhost"], 400),
    "a large body": ([b"Host: localhost", b"Content-Length: 99999999"], 413),
    "a packed body": ([b"Host: localhost", b"Content-Length: 1", b"Content-Encoding: gzip"], 415),
    "a large head": ([b"Host: localhost", b"X: " + b"x" * 9000], 431),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_every_route_refuses(app, kind):
    fields, expected = REFUSED[kind]
    for place, (status, headers, problem) in walk(app, *fields).items():
        assert status == expected, place
        assert problem.keys() == {"error", "code", "field", "request_id"}, place
        assert headers["content-security-policy"].startswith("default-src 'self';"), place
        assert headers["x-request-id"] == problem["request_id"], place


def test_every_route_refuses_other_methods_and_says_which_it_has(app):
    for (known, path), (status, headers, problem) in walk(app, b"Host: localhost", method="DELETE").items():
        if path == "/nowhere":
            assert (status, problem["code"]) == (404, "http")
        else:
            assert (status, problem["code"]) == (405, "http"), path
            assert known in headers["allow"], path
            assert ("HEAD" in headers["allow"]) == ("GET" in headers["allow"]), path


def test_head_answers_like_get_without_a_body_on_every_route_of_the_live_page(run):
    """A stream of events ends with its head."""

    async def ask_all():
        app = build_live_page(run)
        async with listening(PATIENT, None, app) as server, asyncio.timeout(120):
            for _, path in routes_of(app):
                reader, writer = await server.connect()
                for method in (b"HEAD", b"GET"):
                    writer.write(b"%s %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % (method, path.encode()))
                heads = [(await reader.readuntil(b"\r\n\r\n")).splitlines() for _ in range(2)]
                assert heads[0][0] == heads[1][0], path
                assert heads[0][0].split()[1] in (b"200", b"404", b"422"), path
                writer.close()
        app.state.monitor.inspector.stop()

    asyncio.run(ask_all())
