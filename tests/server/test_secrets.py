"""What a server writes and shows holds no secret of its environment (E8) and no text of its users (D13)."""

from waiting import until

TOKEN = "k4n4r13nv0g3l-token"
OTHER = "k4n4r13nv0g3l-other"


def test_the_token_of_a_server_is_not_shown_or_logged(start, run):
    server = start(run, "--languages", "toy=en:de", "--log-requests", token=TOKEN, HF_TOKEN=OTHER)
    shown = [server.get(path) for path in ("/v1/info", "/metrics", "/openapi.json", "/docs", "/", "/frontend/settings")]
    shown += [
        server.post("/v1/translate", {"text": "a b"}),
        server.post("/v1/translate", {"text": "a"}, authorization=""),
    ]
    assert [answer.status for answer in shown] == [200] * 7 + [401]
    server.get(f"/languages?api_key={TOKEN}", authorization="")
    assert server.stop() == 0
    said = b"".join(answer.body + repr(answer.headers).encode() for answer in shown) + server.log.read_bytes()
    assert b"/languages" in said
    assert b"k4n4r13nv0g3l" not in said


def test_no_route_that_is_described_logs_what_it_is_asked(server):
    """The table of routes is the server's own description, so that a route that is added is asked too."""
    text = "Wellensittich"
    asked = []
    for path, methods in server.get("/openapi.json").json()["paths"].items():
        for method in methods:
            body = {"text": text, "q": text, "source": "en", "target": "de", "prefix": text, "model": text}
            fields = [("text", "model"), ("q", "target"), ("q", "source", "target"), ("text", "prefix"), ("text",)]
            bodies = [{name: body[name] for name in names} for names in fields] if method == "post" else [None]
            for content in bodies:
                server.ask(method.upper(), f"{path}?query={text}", content, user_agent=text, referer=f"http://{text}/")
            asked.append(path)
    assert {"/v1/translate", "/translate", "/v1/attention"} <= set(asked)
    until(lambda: all(f"{path} " in server.log.read_text() for path in asked))
    assert text not in server.log.read_text()
    assert text not in server.get("/metrics").body.decode()
