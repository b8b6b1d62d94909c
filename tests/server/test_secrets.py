"""E8: the token of a server, and other secrets of its environment, are shown to nobody."""

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
