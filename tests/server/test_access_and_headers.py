"""D10 to D14: access, errors that repeat no text, security headers, logs without text."""

import base64
import os
import re
import sys
from pathlib import Path

import pytest
from waiting import until

from dragoman.server import app, libretranslate, openai_audio
from dragoman.server.access import AccessPolicy, token_required
from dragoman.server.app import build_app, route_limits
from dragoman.server.limits import Limits
from dragoman.server.problems import Problem

TOKEN = "correct-horse-battery"
CANARY = "Kanarienvogel"


@pytest.fixture(scope="module")
def locked(start, run):
    return start(run, "--languages", "toy=en:de", token=TOKEN)


ROUTES = [
    (method, route.path)
    for router in (build_app(None, AccessPolicy(None)), app.router, libretranslate.router, openai_audio.router)
    for route in router.routes
    for method in sorted((getattr(route, "methods", None) or set()) - {"HEAD"})
]
EVERY = [*ROUTES, ("GET", "/server/page/index.html"), ("GET", "/viewer/static/viewer.js"), ("GET", "/nowhere")]


def test_limits_are_set_for_existing_routes_only():
    assert route_limits(Limits()).keys() <= {path for _, path in ROUTES}


@pytest.mark.parametrize("path", dict.fromkeys(path for method, path in EVERY if method == "GET"))
def test_head_answers_like_get_without_a_body(server, path):
    got, head = server.get(path), server.ask("HEAD", path)
    assert (head.status, head.body) == (got.status, b"")
    varying = {"date", "x-request-id", *(["content-length"] if path == "/metrics" else [])}
    same = lambda answer: {name: value for name, value in answer.headers.items() if name not in varying}  # noqa: E731
    assert same(head) == same(got)


@pytest.mark.parametrize(("method", "path"), EVERY)
def test_every_route_requires_the_token(locked, method, path):
    body = {"text": "a", "q": "a", "target": "de"} if method == "POST" else None
    wrong = "Basic " + base64.b64encode(b"me:wrong-token").decode()
    for header in ("", "Bearer wrong-token", "Bearer", wrong, "Basic !!!"):
        answer = locked.ask(method, path, body, authorization=header)
        assert answer.status == 401 and '"code": "unauthorized"' in answer.body.decode()
        assert "www-authenticate" in answer.headers


def test_the_token_is_accepted_as_bearer_as_password_and_as_api_key(locked):
    assert locked.get("/v1/info").status == 200
    password = "Basic " + base64.b64encode(f"anyone:{TOKEN}".encode()).decode()
    assert locked.get("/v1/info", authorization=password).status == 200
    question = {"q": "a b", "source": "en", "target": "de"}
    assert locked.post("/translate", {**question, "api_key": TOKEN}, authorization="").status == 200
    assert locked.post("/translate", {**question, "api_key": "wrong"}, authorization="").status == 401
    assert locked.get(f"/languages?api_key={TOKEN}", authorization="").status == 200
    assert locked.post("/v1/translate?api_key=" + TOKEN, {"text": "a"}, authorization="").status == 401
    assert locked.get("/frontend/settings").json()["keyRequired"] is True


def test_every_response_has_the_security_headers(server):
    for path in ("/", "/v1/info", "/nowhere", "/docs", "/server/page/page.js", "/translate"):
        headers = server.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'self';")
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert "media-src blob:;" in headers["content-security-policy"]  # recordings are played that no server sent
        assert headers["permissions-policy"] == "microphone=(self)"
        assert headers["x-content-type-options"] == "nosniff"
        assert re.fullmatch(r"[0-9a-f]{16}", headers["x-request-id"])
        assert not headers.keys() & {"set-cookie", "access-control-allow-origin", "server"}


def test_the_api_page_has_no_inline_scripts_and_loads_nothing_from_other_hosts(server):
    page = server.get("/docs").body.decode()
    assert "POST /v1/translate" in page
    assert not re.search(r"<script|<style|style=|\son\w+=|https?://", page)


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "", "127.0.0.1.evil.example", "[::1", "a:b"]
)
def test_an_unknown_host_name_is_refused(server, host):
    assert server.get("/", host=host).status in (400, 421)


@pytest.mark.parametrize("host", ["localhost", "localhost:99", "127.0.0.1:8000", "[::1]:8000", "LOCALHOST"])
def test_ip_addresses_and_localhost_are_accepted(host):
    AccessPolicy(None).check_host([host.encode()])


def test_host_names_can_be_allowed():
    AccessPolicy(None, ["Translate.example"]).check_host([b"translate.example:443"])
    with pytest.raises(Problem):
        AccessPolicy(None).check_host([b"translate.example:443"])


def test_pages_of_other_sites_are_refused(server):
    answer = server.post("/v1/translate", {"text": "a"}, origin="http://evil.example")
    assert (answer.status, answer.json()["code"]) == (403, "foreign_origin")
    assert server.get("/v1/info", origin=f"http://127.0.0.1:{server.port}").status == 200


def test_without_a_configured_token_every_request_is_authorized():
    assert AccessPolicy(None).has_valid_token({})
    assert not AccessPolicy(TOKEN).has_valid_token({})
    assert token_required().status == 401


WRONG = [
    ("/v1/translate", {"text": [CANARY]}),
    ("/v1/translate", {"text": CANARY * 1000}),
    ("/v1/translate", {f"{CANARY} sings": 1}),
    ("/v1/translate", {"text": "a", "known": CANARY}),
    ("/v1/translate", {"text": "a", CANARY * 5: CANARY}),
    ("/v1/translate", {"text": "a", "model": CANARY}),
    ("/v1/translate", {"text": "a", "beam": CANARY}),
    ("/v1/translate", {"text": "a", "n_best": 9}),
    ("/v1/translate", {"text": "a", "n_best": 8, "beam": 2}),
    ("/v1/translate", {"texts": []}),
    ("/v1/translate", {"texts": ["a"] * 33}),
    ("/v1/translate", {}),
    ("/v1/translate", [CANARY]),
    ("/v1/translate", f'{{"text": "{CANARY}'.encode()),
    ("/v1/translate", b'{"text": "\\ud800' + CANARY.encode() + b'"}'),
    ("/v1/translate", b"\xff\xfe" + CANARY.encode()),
    ("/v1/translate", b"[" * 100_000),
    ("/v1/attention", {"text": "a", "without": [[CANARY, 0, 0]]}),
    ("/v1/attention", {"text": "a", "without": [["encoder", 77, 0]]}),
    ("/v1/attention", {"text": "   "}),
    ("/v1/attention", {"text": "a", "checkpoint": 5}),
    ("/translate", {"q": CANARY, "source": "en", "target": CANARY}),
    ("/translate", {"q": 5, "source": "en", "target": "de"}),
    ("/translate", {"q": CANARY, "target": "de", "format": CANARY}),
    ("/translate", b"[" * 100_000),
    (f"/{CANARY}", {}),
]


@pytest.mark.parametrize(("path", "body"), WRONG, ids=range(len(WRONG)))
def test_an_error_has_four_fields_and_repeats_no_text_of_the_request(server, path, body):
    answer = server.post(path, body, content_type="application/json")
    assert 400 <= answer.status < 500
    said = answer.json()
    assert said.keys() == {"error", "code", "field", "request_id"}
    assert said["request_id"] == answer.headers["x-request-id"]
    assert len(answer.body) < 500
    for leak in (CANARY, "Traceback", "/work", "site-packages", ".py"):
        assert leak.encode() not in answer.body


def test_a_wrong_method_is_answered_with_the_allowed_one(server):
    answer = server.ask("PUT", "/v1/translate", {"text": "a"})
    assert (answer.status, answer.headers["allow"]) == (405, "POST")


def test_logs_have_routes_and_codes_but_no_text(server):
    server.translate(CANARY)
    server.post("/v1/translate", {"text": CANARY, "model": CANARY})
    server.get(f"/{CANARY}?{CANARY}={CANARY}")
    server.post("/translate", f"q={CANARY}&target={CANARY}".encode(), content_type="application/x-www-form-urlencoded")
    until(lambda: "/v1/translate 200" in server.log.read_text())
    assert CANARY not in server.log.read_text()
    assert CANARY not in server.get("/metrics").body.decode()


def test_the_server_opens_no_outgoing_connection(start, run, tmp_path):
    """Every connection that any process of the server opens would be written down."""
    watcher = """
import os, sys
def heard(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.sendto"):
        with open(os.environ["WATCHED"], "a") as file:
            print(os.getpid(), event, arguments[-1] if event != "socket.getaddrinfo" else arguments[:2], file=file)
sys.addaudithook(heard)
"""
    (tmp_path / "sitecustomize.py").write_text(watcher)
    watched = tmp_path / "watched"
    server = start(run, PYTHONPATH=os.pathsep.join([str(tmp_path), *sys.path]), WATCHED=str(watched))
    server.translate("a b c")
    server.post("/v1/attention", {"text": "a b c"})
    server.get("/")
    assert server.stop() == 0
    lines = watched.read_text().splitlines()
    assert lines, "the watcher heard of the address that we listen on"
    assert all("socket.getaddrinfo ('127.0.0.1', 0)" in line for line in lines), lines


def test_the_http_process_does_not_load_torch(server):
    loaded = Path(f"/proc/{server.process.pid}/maps").read_text()
    assert "torch" not in loaded
    assert "torch" in Path(f"/proc/{server.worker()}/maps").read_text()


def test_the_openapi_description_describes_every_field(server):
    described = server.get("/openapi.json").json()
    body = described["paths"]["/v1/translate"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    fields = described["components"]["schemas"][body["$ref"].rpartition("/")[2]]["properties"]
    assert {"text", "texts", "beam", "n_best", "prefix", "details", "stream"} <= fields.keys()
    assert all("description" in field for field in fields.values())
    error = server.get("/nowhere").json()
    assert described["components"]["schemas"]["ErrorResponse"]["properties"].keys() == error.keys()
