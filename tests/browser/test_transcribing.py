"""The page with a transcriber: recordings from files and the microphone, and the spectrogram with its attention."""

import base64
import io
import wave

import numpy as np
import pytest
from wav_files import RATE, draw_message, encode_wav

import dragoman

HOST = "speech.test"
COLOURED = """([left, right]) => {
  const canvas = document.querySelector('#recording-canvas');
  const hidden = document.querySelector('#recording-scroller').scrollLeft;
  const [first, last] = [Math.max(0, left - hidden), Math.min(canvas.width, right - hidden)];
  const { data } = canvas.getContext('2d').getImageData(first, 40, last - first, 100);
  return data.filter((value, i) => i % 4 === 0 && value - data[i + 2] > 40).length / (data.length / 4);
}"""  # the share of orange pixels between two places of the spectrogram


@pytest.fixture(scope="module")
def browser_flags(transcriber, tmp_path_factory) -> tuple[str, ...]:
    """A microphone that hears a message again and again, and the name for this machine."""
    heard = tmp_path_factory.mktemp("microphone") / "heard.wav"
    heard.write_bytes(encode_wav(draw_message()))
    return (
        "--use-fake-device-for-media-stream", f"--use-file-for-fake-audio-capture={heard}",
        "--deny-permission-prompts", f"--host-resolver-rules=MAP {HOST} 127.0.0.1",
    )  # fmt: skip


@pytest.fixture(scope="module")
def segments(transcriber, recording):
    return list(dragoman.load(transcriber).transcribe_segments(recording))


@pytest.fixture
def page(visit, speech_server):
    page = visit(speech_server)
    page.wait_for_selector("#sound-side:visible")
    return page


def text_of(segments):
    return " ".join(segment.text for segment in segments if segment.text)


def choose_file(page, path):
    page.set_input_files("#file", path)
    page.wait_for_selector("#target .word")


def file_of(name, content):
    return {"name": name, "mimeType": "audio/wav", "buffer": content}


def test_a_chosen_file_is_transcribed_as_by_the_model(page, recording, segments):
    choose_file(page, recording)
    assert page.text_content("#target") == text_of(segments)
    assert page.locator("#target .word").count() == sum(len(segment.words) for segment in segments) > 1
    assert page.text_content("#file-name") == "three.wav"
    assert page.text_content("#recording-position") == f"0.0 s / {segments[-1].end_seconds:.1f} s"
    assert page.is_hidden("#inspection")


@pytest.mark.parametrize("event", ["drop", "paste"])
def test_a_file_can_be_dropped_and_pasted(page, recording, segments, event):
    page.evaluate(
        """([event, bytes]) => {
          const data = new DataTransfer();
          data.items.add(new File([Uint8Array.from(atob(bytes), (letter) => letter.charCodeAt(0))], 'given.wav'));
          const options = { bubbles: true, cancelable: true };
          document.body.dispatchEvent(event === 'drop'
            ? new DragEvent('drop', { ...options, dataTransfer: data })
            : new ClipboardEvent('paste', { ...options, clipboardData: data }));
        }""",
        [event, base64.b64encode(recording.read_bytes()).decode()],
    )
    page.wait_for_selector("#target .word")
    assert page.text_content("#target") == text_of(segments)


def test_pointing_at_a_word_shows_where_it_was_heard(page, recording, segments):
    choose_file(page, recording)
    second = segments[1].words[0]
    scale = page.evaluate("document.querySelector('#recording-strip').clientWidth") / segments[-1].end_seconds
    word = page.locator("#target .word").nth(len(segments[0].words))
    word.hover()
    page.wait_for_selector(f"#recording-word:has-text('{second.start_seconds:.2f} to {second.end_seconds:.2f} s')")
    inside = [segments[1].start_seconds * scale + 10, segments[1].end_seconds * scale - 10]
    outside = [0, segments[0].end_seconds * scale - 10]
    page.wait_for_function(f"places => ({COLOURED})(places) === 0", arg=outside)
    assert page.evaluate(COLOURED, inside) > 0.2
    page.hover("#copy")
    page.wait_for_function(f"places => ({COLOURED})(places) > 0", arg=outside)  # the attention of all words


def test_pointing_at_the_spectrogram_highlights_the_word(page, recording, segments):
    choose_file(page, recording)
    second = segments[1].words[0]
    scale = page.evaluate("document.querySelector('#recording-strip').clientWidth") / segments[-1].end_seconds
    middle = (second.start_seconds + second.end_seconds) / 2 * scale
    page.hover("#recording-strip", position={"x": middle, "y": 90})
    page.wait_for_selector("#target .word.heard")
    assert page.locator("#target .word.heard").all_text_contents() == [second.text]
    page.hover("#copy")
    page.wait_for_selector("#target .word.heard", state="detached")


def test_words_can_be_reached_and_played_by_keyboard(page, recording, segments):
    choose_file(page, recording)
    page.locator("#target .word").first.focus()
    page.keyboard.press("End")
    last = segments[-1].words[-1]
    page.wait_for_selector("#target .word.heard:focus")
    assert page.locator("#target .word.heard").get_attribute("title") == (
        f"{last.start_seconds:.2f} to {last.end_seconds:.2f} s"
    )
    listen_for_play(page)
    page.keyboard.press("Enter")
    started_at, pressed = page.evaluate("window.played")
    assert last.start_seconds - 0.11 <= started_at < last.end_seconds
    assert pressed == "true"


def listen_for_play(page):
    """Note the position, and the state of the button, when the recording is played."""
    page.evaluate("""() => {
      const player = document.querySelector('#player');
      const state = () => [player.currentTime, document.querySelector('#play').getAttribute('aria-pressed')];
      window.played = new Promise((done) => player.addEventListener('play', () => done(state()), { once: true }));
    }""")


def test_the_recording_can_be_played_and_paused(page, recording):
    choose_file(page, recording)
    listen_for_play(page)
    page.click("#play:enabled")
    assert page.evaluate("window.played")[1] == "true"
    page.evaluate("document.querySelector('#player').pause()")
    page.wait_for_selector("#play[aria-pressed=false]")


def test_the_position_is_moved_by_keyboard_and_by_clicking(page, recording, segments):
    choose_file(page, recording)
    page.focus("#recording-strip")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#recording-strip[aria-valuenow='0.50']")
    page.click("#recording-strip", position={"x": 300, "y": 90})
    page.wait_for_selector("#recording-strip:not([aria-valuenow='0.50'])")
    page.keyboard.press("Home")
    page.wait_for_selector("#recording-strip[aria-valuenow='0.00']")


def test_a_long_recording_is_scrolled_and_its_canvas_is_not_wider_than_the_page(page, transcriber):
    samples = np.concatenate([draw_message()] * 9)
    choose_file(page, file_of("long.wav", encode_wav(samples)))
    widths = page.evaluate("['strip', 'canvas'].map((id) => document.querySelector(`#recording-${id}`).clientWidth)")
    assert widths[0] == pytest.approx(100 * len(samples) / RATE, abs=5)
    assert widths[1] < 1200
    page.locator("#target .word").last.focus()
    page.wait_for_function("() => document.querySelector('#recording-scroller').scrollLeft > 1000")


def test_a_recording_too_long_for_details_has_its_words_without_a_spectrogram(page, recording):
    sent = []

    def refuse_details(route):
        sent.append(route.request.url)
        refusal = {"error": "too many details", "code": "answer_too_large"}
        return route.fulfill(status=422, json=refusal) if len(sent) == 1 else route.fallback()

    page.route("**/v1/transcribe", refuse_details)
    choose_file(page, recording)
    assert len(sent) == 2
    assert page.locator("#recording-canvas").bounding_box()["height"] < 100


def test_a_text_file_has_the_servers_message(page):
    page.set_input_files("#file", file_of("speech.wav", b"This is a text, not a recording.\n" * 9))
    page.wait_for_selector("#message.bad:has-text('sound')")
    assert page.text_content("#target") == ""
    assert page.is_hidden("#progress-row")


@pytest.mark.parametrize(("seconds", "message"), [(61, "takes 61 seconds"), (130, "has 2 MB")], ids=["long", "large"])
def test_recordings_above_a_limit_are_not_sent(page, seconds, message):
    sent = []
    page.on("request", lambda request: sent.append(request.url))
    page.set_input_files("#file", file_of("much.wav", encode_wav(np.zeros(seconds * RATE))))
    page.wait_for_selector(f"#message.bad:has-text('{message}')")
    page.evaluate("fetch('readyz')")  # comes after whatever the page has sent
    assert not [url for url in sent if url.endswith("transcribe")]


def test_a_recording_in_which_nothing_is_heard_has_a_message(page, recording):
    heard = {"text": "", "start_seconds": 0.0, "end_seconds": 1.0, "score": 0.0, "words": []}
    answer = {"text": "", "duration_seconds": 1.0, "segments": [heard], "model": "transcriber"}
    page.route("**/v1/transcribe", lambda route: route.fulfill(json=answer))
    page.set_input_files("#file", recording)
    page.wait_for_selector("#message:has-text('Nothing was heard in this recording.')")
    assert page.is_hidden("#copy")


def test_a_request_can_be_cancelled(page, recording):
    page.route("**/v1/transcribe", lambda route: None)
    with page.expect_request("**/v1/transcribe"):
        page.set_input_files("#file", recording)
    assert page.is_visible("#progress-row")
    with page.expect_event("requestfailed", lambda request: request.url.endswith("/v1/transcribe")):
        page.click("#cancel")
    page.wait_for_selector("#progress-row", state="hidden")
    assert page.text_content("#message-text") == page.text_content("#file-name") == ""


def test_a_token_is_asked_for_and_the_recording_sent_again(page, recording, segments):
    def guarded(route):
        known = route.request.headers.get("authorization") == "Bearer a-secret-token"
        return route.fallback() if known else route.fulfill(status=401, json={"error": "no", "code": "unauthorized"})

    page.route("**/v1/*", guarded)
    page.set_input_files("#file", recording)
    page.wait_for_selector("#token:visible")
    page.fill("#token", "a-secret-token")
    page.press("#token", "Enter")
    page.wait_for_selector("#target .word")
    assert page.text_content("#target") == text_of(segments)


def test_the_transcript_can_be_copied(visit, speech_server, recording, segments):
    page = visit(speech_server, permissions=["clipboard-read", "clipboard-write"])
    choose_file(page, recording)
    page.click("#copy")
    page.wait_for_selector("#copy:text('Copied')")
    assert page.evaluate("navigator.clipboard.readText()") == text_of(segments)


def test_the_choice_of_the_model_switches_between_sound_and_text(page, recording, segments, runs):
    choose_file(page, recording)
    page.select_option("#model", "there")
    page.wait_for_selector("#source:visible")
    assert page.is_hidden("#sound-side") and page.is_hidden("#recording") and page.is_visible("#inspection")
    page.fill("#source", "The lamp is old.")
    translation = dragoman.load(runs[0]).translate("The lamp is old.")
    page.wait_for_function("wanted => document.querySelector('#target').textContent === wanted", arg=translation)
    page.select_option("#model", "transcriber")
    page.wait_for_selector("#recording:visible")  # the same recording again
    assert page.text_content("#target") == text_of(segments)
    assert page.is_hidden("#source")


def record(page):
    """Record for a second, by the samples that have arrived."""
    page.click("#record")
    page.wait_for_function("() => parseFloat(document.querySelector('#elapsed').textContent) >= 1")
    page.click("#record:has-text('Stop')")


def test_speech_is_recorded_from_the_microphone(visit, speech_server):
    page = visit(speech_server, permissions=["microphone"])
    record(page)
    page.wait_for_selector("#target .word")
    assert page.text_content("#file-name") == "recording.wav"
    assert page.evaluate("document.querySelector('#player').duration") >= 1
    assert page.is_hidden("#recording-progress")


def test_a_recording_is_stopped_at_the_limit_of_the_server(visit, speech_server):
    def limit(page):
        def shorten(route):
            info = route.fetch().json()
            route.fulfill(json={**info, "limits": {**info["limits"], "recording_seconds": 0.5}})

        page.route("**/v1/info", shorten)

    page = visit(speech_server, limit, permissions=["microphone"])
    page.click("#record")
    page.wait_for_selector("#target .word")
    assert page.text_content("#recording-note") == "Recording stopped: the server accepts no longer recordings."
    assert page.evaluate("document.querySelector('#player').duration") == pytest.approx(0.5, abs=0.001)


def test_a_muted_microphone_has_a_message(page):
    page.evaluate("""() => {
      const silence = new AudioContext().createMediaStreamDestination().stream;
      navigator.mediaDevices.getUserMedia = () => Promise.resolve(silence);
    }""")
    record(page)
    page.wait_for_selector("#message.bad:has-text('Nothing was heard: the microphone sent no sound.')")


def test_a_denied_microphone_has_a_message(page):
    page.click("#record")
    page.wait_for_selector("#message.bad:has-text('This page is not allowed to use the microphone.')")
    assert page.is_enabled("#record")


def test_a_page_that_is_not_secure_cannot_record_and_says_so(visit, speech_server):
    page = visit(speech_server.replace("127.0.0.1", HOST))
    page.click("#record")
    page.wait_for_selector("#message.bad:has-text('https')")


def test_a_missing_microphone_has_a_message(page):
    page.evaluate("""() => {
      navigator.mediaDevices.getUserMedia = () => Promise.reject(new DOMException('', 'NotFoundError'));
    }""")
    page.click("#record")
    page.wait_for_selector("#message.bad:has-text('No microphone was found.')")


def test_a_recording_is_a_wav_file_with_the_samples(page):
    content = page.evaluate("""async () => {
      const { encodeWav, toPcm } = await import('/server/page/wav.js');
      const file = encodeWav([toPcm(new Float32Array([0, 0.5])), toPcm(new Float32Array([-1, 7]))], 44100, 'a.wav');
      return [...new Uint8Array(await file.arrayBuffer())];
    }""")
    with wave.open(io.BytesIO(bytes(content))) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (44100, 1, 2)
        assert np.frombuffer(file.readframes(9), "<i2").tolist() == [0, 16384, -32767, 32767]


def test_the_attention_of_a_word_is_that_of_its_tokens(page):
    """The server counts characters, a browser units of UTF-16; words without times have those of their attention."""
    words = page.evaluate("""async () => {
      const { readTranscript } = await import('/server/page/transcript.js');
      const token = (start, end) => ({ piece: '', start, end });
      const attention = {
        tokens: [token(0, 2), token(2, 3), token(3, 4), token(4, 5)], positions: 3, seconds_per_position: 0.04,
        weights: btoa(String.fromCharCode(255, 9, 0, 1, 2, 3, 0, 255, 0, 0, 200, 255)),
      };
      const segment = { text: '😀a bc', start_seconds: 1, end_seconds: 1.12, words: [], attention };
      const { words } = readTranscript({ text: '😀a bc', duration_seconds: 2, segments: [segment], model: '' });
      return words.map(({ text, start, startSeconds, endSeconds, weights }) =>
        [text, start, startSeconds, endSeconds, ...weights]);
    }""")
    assert words == [
        ["😀a", 0, 1, pytest.approx(1.04), 255, 9, 0],
        ["bc", 4, pytest.approx(1.04), pytest.approx(1.12), 0, 255, 255],
    ]
