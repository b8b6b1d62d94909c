"""The page at `/`: translates what is typed, and shows errors."""

import json

import pytest

import dragoman

KNOWN = {"username": "anyone", "password": "a-secret-token"}
SENTENCE = "The lamp is old, but it works."


@pytest.fixture(scope="module")
def model(runs):
    return dragoman.load(runs[0])


def wait_for(page, translation):
    page.wait_for_function("wanted => document.querySelector('#target').textContent === wanted", arg=translation)


def type_and_wait(page, text, translation):
    page.fill("#source", text)
    wait_for(page, translation)


def hold(page):
    """Hold the next translation back for ever; the others are answered."""
    held = []
    page.route("**/v1/translate", lambda route: route.fallback() if held else held.append(route))


def is_translation(request):
    return request.url.endswith("/v1/translate")


def fail(page, status, *, times=1, **headers):
    """Let the next translations fail with this status."""
    left = [times]

    def answer(route):
        left[0] -= 1
        if left[0] < 0:
            return route.fallback()
        body = json.dumps({"error": "it failed", "code": "test"})
        return route.fulfill(status=status, headers=headers, body=body, content_type="application/json")

    page.route("**/v1/translate", answer)


def test_typed_text_is_translated_as_by_the_model(page, model):
    type_and_wait(page, SENTENCE, model.translate(SENTENCE))


def test_the_translation_follows_the_typing_and_an_old_request_is_aborted(page, model):
    """The answer to an aborted request cannot be shown."""
    hold(page)
    with page.expect_request(is_translation) as asked:
        page.fill("#source", "The dog sleeps.")
    with page.expect_event("requestfailed", is_translation) as aborted:
        page.fill("#source", SENTENCE)
    assert aborted.value.post_data_json["text"] == asked.value.post_data_json["text"] == "The dog sleeps."
    wait_for(page, model.translate(SENTENCE))


def test_a_burst_of_keys_is_one_request(page, model):
    asked = []
    page.on("request", lambda request: asked.append(request.url) if "v1/translate" in request.url else None)
    page.clock.install()
    page.clock.pause_at(page.evaluate("Date.now()") + 1000)  # however long a key takes on this machine
    page.locator("#source").press_sequentially("The lamp")
    assert not asked
    page.clock.resume()
    wait_for(page, model.translate("The lamp"))
    assert len(asked) == 1


def test_clearing_the_text_clears_the_translation(page, model):
    type_and_wait(page, SENTENCE, model.translate(SENTENCE))
    page.click("#clear")
    assert page.text_content("#target") == ""
    assert page.evaluate("document.activeElement.id") == "source"


def test_clearing_the_text_aborts_its_request(page):
    hold(page)
    with page.expect_request(is_translation):
        page.fill("#source", SENTENCE)
    with page.expect_event("requestfailed", is_translation):
        page.click("#clear")
    assert page.text_content("#target") == ""


def test_languages_are_named_and_can_be_swapped(page, model, runs):
    assert page.locator("#from option:checked").text_content() == "English"
    assert page.locator("#to option:checked").text_content() == "German"
    type_and_wait(page, SENTENCE, model.translate(SENTENCE))
    page.click("#swap")
    german = model.translate(SENTENCE)
    back = dragoman.load(runs[1]).translate(german)
    wait_for(page, back)
    assert page.input_value("#source") == german
    assert page.locator("#from option:checked").text_content() == "German"


def test_the_characters_are_counted_and_too_many_are_not_sent(page):
    limit = page.evaluate("fetch('frontend/settings').then(said => said.json())")["charLimit"]
    page.fill("#source", "🙂" * 3)
    assert page.text_content("#count") == f"3 / {limit:,}"
    sent = []  # the three characters may be among it
    page.on("request", lambda request: sent.append(request.post_data or request.url))
    page.clock.install()
    page.fill("#source", "a" * (limit + 2))
    page.clock.fast_forward(10_000)  # however long the page waits after the last key
    page.evaluate("fetch('readyz')")  # comes after whatever the page has sent
    assert "2 characters too long" in page.text_content("#message")
    assert "readyz" in sent[-1]
    assert not [text for text in sent if "aaa" in text]


def test_the_translation_can_be_copied(browser, visit, served, model):
    page = visit(served, permissions=["clipboard-read", "clipboard-write"])
    type_and_wait(page, SENTENCE, model.translate(SENTENCE))
    page.click("#copy")
    page.wait_for_selector("#copy:text('Copied')")
    assert page.evaluate("navigator.clipboard.readText()") == model.translate(SENTENCE)


def test_an_alternative_of_the_whole_text_can_be_chosen_and_reset(page, model):
    best = model.translate(SENTENCE)
    type_and_wait(page, SENTENCE, best)
    page.click("#alternatives")
    other = page.locator("#others-list button").first
    wanted = other.text_content()
    other.click()
    assert page.text_content("#target") == wanted != best
    page.click("#reset")
    assert page.text_content("#target") == best


def test_a_translation_continues_from_the_users_own_word(page, model):
    type_and_wait(page, SENTENCE, model.translate(SENTENCE))
    page.locator("#target .word").nth(1).click()
    page.wait_for_selector("#own:visible")
    page.fill("#own", "Lampe")
    page.press("#own", "Enter")
    page.wait_for_function("() => document.querySelector('#target').textContent.includes('Lampe')")
    first = model.translate(SENTENCE).split()[0]
    assert page.text_content("#target").startswith(f"{first} Lampe")
    assert page.evaluate("document.activeElement.textContent").startswith("Lampe")


def test_alternatives_that_arrive_leave_the_focus_to_a_user_who_types(page, model):
    type_and_wait(page, SENTENCE, model.translate(SENTENCE))
    held = []
    page.route("**/v1/translate", lambda route: held.append(route))
    with page.expect_request("**/v1/translate"):
        page.locator("#target .word").nth(1).click()
    page.fill("#own", "Lam")
    held[0].fallback()
    page.wait_for_selector("#others-list button, #others-status:has-text('no alternative')")
    page.keyboard.type("pe")
    assert page.input_value("#own") == "Lampe"


def test_the_alternatives_of_a_word_begin_with_the_text_before_it(page, model):
    type_and_wait(page, SENTENCE, model.translate(SENTENCE))
    with page.expect_request("**/v1/translate") as asked:
        page.locator("#target .word").nth(1).click()
    assert asked.value.post_data_json["prefix"] == model.translate(SENTENCE).split()[0]
    page.wait_for_selector("#others-list button, #others-status:has-text('no alternative')")


@pytest.mark.parametrize("status", [429, 503])
def test_a_request_to_a_busy_server_is_repeated_after_retry_after(page, model, status):
    fail(page, status, **{"Retry-After": "600"})
    page.clock.install()
    page.fill("#source", SENTENCE)
    page.wait_for_selector("#message:has-text('it failed Trying again in')")
    page.clock.fast_forward(500_000)
    page.wait_for_selector("#message:has-text('it failed Trying again in')")
    page.clock.fast_forward(100_000)
    wait_for(page, model.translate(SENTENCE))
    assert page.is_hidden("#message")


def test_trying_now_does_not_wait(page, model):
    fail(page, 503, **{"Retry-After": "600"})
    page.fill("#source", SENTENCE)
    page.click("#message button")
    type_and_wait(page, SENTENCE, model.translate(SENTENCE))


def test_an_offline_page_shows_a_message_and_continues_when_it_is_online(page, model):
    page.context.set_offline(True)
    page.fill("#source", SENTENCE)
    page.wait_for_selector("#message:has-text('You are offline.')")
    page.context.set_offline(False)
    type_and_wait(page, SENTENCE, model.translate(SENTENCE))


def test_an_error_is_shown_with_the_servers_message(page):
    fail(page, 422)
    page.fill("#source", SENTENCE)
    page.wait_for_selector("#message.bad:has-text('it failed')")


def test_right_to_left_text_has_its_direction(page):
    page.fill("#source", "שלום עולם")
    assert page.evaluate("document.querySelector('#source').matches(':dir(rtl)')")
    page.route(
        "**/v1/translate",
        lambda route: route.fulfill(json={"translations": [[{"text": "مرحبا بالعالم"}]], "model": "x"}),
    )
    page.fill("#source", "hello world")
    page.wait_for_selector("#target .word")
    assert page.evaluate("document.querySelector('#target').matches(':dir(rtl)')")


def test_the_theme_follows_the_system_until_it_is_switched_and_the_choice_is_kept(visit, served):
    page = visit(served, color_scheme="dark")
    background = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(background)
    page.click("#theme")
    light = page.evaluate(background)
    assert dark != light
    page.reload()
    assert page.evaluate(background) == light


def test_all_controls_can_be_reached_by_keyboard(page):
    page.keyboard.type(SENTENCE)  # the text has the focus from the start
    page.wait_for_selector("#target .word")
    reached = set()
    for _ in range(8):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.className"))
    assert {"clear", "word", "alternatives", "copy", "inspect"} <= reached


def test_arrow_keys_move_between_words_and_escape_returns_to_them(page):
    page.fill("#source", SENTENCE)
    page.wait_for_selector("#target .word")
    page.locator("#target .word").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.wait_for_selector("#others:visible")
    page.keyboard.press("Escape")
    page.wait_for_selector("#others", state="hidden")
    assert page.evaluate("document.activeElement === document.querySelectorAll('#target .word')[1]")


def test_the_page_fits_a_phone(visit, served):
    page = visit(served, viewport={"width": 360, "height": 740})
    page.fill("#source", SENTENCE + " " + "Donaudampfschifffahrtsgesellschaft" * 3)
    page.wait_for_selector("#target .word")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_browser_can_send_the_token_as_a_password(visit, start, runs):
    """A browser asks for a password by itself, before there is a page; it is the token."""
    page = visit(start("serve", runs[0], "--token", "a-secret-token"), http_credentials=KNOWN)
    page.fill("#source", SENTENCE)
    page.wait_for_selector("#target .word")


def test_a_token_typed_on_the_page_is_not_stored(page, model):
    def guarded(route):
        known = route.request.headers.get("authorization") == "Bearer a-secret-token"
        return route.fallback() if known else route.fulfill(status=401, json={"error": "no", "code": "unauthorized"})

    page.route("**/v1/*", guarded)
    page.fill("#source", SENTENCE)
    for token in ("wrong", "a-secret-token"):
        page.wait_for_selector("#token:visible")
        page.fill("#token", token)
        page.press("#token", "Enter")
    wait_for(page, model.translate(SENTENCE))
    assert "a-secret-token" not in page.evaluate(
        "JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])"
    )
