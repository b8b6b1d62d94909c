"""The page with models of other tasks; the tests supply the server's responses."""

import json

WRITTEN = "wanted => document.querySelector('#target').textContent === wanted"

PARSER = {
    "name": "parser", "source": "", "target": "", "noun": "parser", "input_hint": "Type a sentence",
    "has_language_pair": False,
    "raw_text_io": False, "never_split": True, "is_language_model": False, "sampling": None,
}  # fmt: skip
INFLECTOR = {**PARSER, "name": "inflector", "noun": "inflector", "input_hint": "lemma\tV;PST"}
WRITER = {
    **PARSER, "name": "writer", "noun": "language model", "input_hint": "Begin", "raw_text_io": True,
    "is_language_model": True, "sampling": {"temperature": 0.7, "top_k": 5, "top_p": 0.9, "seed": 3},
}  # fmt: skip


HOSTILE = "<script>parent.document.title = 'hurt'</script>"
SVG = f'<svg xmlns="http://www.w3.org/2000/svg" width="30" height="20">{HOSTILE}</svg>'


def served_with(models, questions, text, **more):
    """Return what makes a page believe that these models are served, and that they answer with a text."""

    def answer(route):
        questions.append(json.loads(route.request.post_data))
        found = {"text": text, "score": -1.0, "log_probability": -1.0, "truncated": False, **more}
        route.fulfill(json={"translations": [[found]], "model": models[0]["name"]})

    def prepare(page):
        page.route("**/v1/info", lambda route: route.fulfill(json={"version": "1", "models": models}))
        page.route("**/languages", lambda route: route.fulfill(json=[]))
        page.route("**/v1/translate", answer)

    return prepare


def test_a_parser_has_its_own_hint_and_its_output_is_not_clickable(visit, served):
    questions = []
    page = visit(served, served_with([PARSER], questions, "(TOP (NN dog))"))
    page.wait_for_selector("#source[placeholder='Type a sentence']")
    page.fill("#source", "dog")
    page.wait_for_function(WRITTEN, arg="(TOP (NN dog))")
    assert page.locator("#target .word").count() == 0
    assert page.locator("#from-choice").is_hidden()
    assert page.locator("#generate").is_hidden()
    assert questions[-1] == {"text": "dog", "model": "parser", "pictures": True}
    assert page.locator("#pictures").is_hidden()


def test_drawings_of_an_output_are_shown_as_images_that_can_be_saved(visit, served):
    page = visit(served, served_with([PARSER], [], "(TOP (NN dog))", pictures=[SVG, SVG]))
    page.fill("#source", "dog")
    loaded = "() => [...document.querySelectorAll('#pictures img')].filter(one => one.naturalWidth === 30).length === 2"
    page.wait_for_function(loaded)
    assert page.locator("#pictures a").first.get_attribute("download") == "Drawing 1.svg"
    assert page.title() == "Dragoman"
    page.click("#clear")
    page.wait_for_selector("#pictures", state="hidden")


def test_two_spaces_stand_for_a_tab(visit, served):
    questions = []
    page = visit(served, served_with([INFLECTOR, PARSER], questions, "went"))
    page.fill("#source", "go  V;PST")
    page.wait_for_function(WRITTEN, arg="went")
    assert questions[-1]["text"] == "go\tV;PST"
    assert page.locator("#model option").all_text_contents() == ["inflector", "parser"]


def test_the_choice_of_models_without_languages_is_above_the_text(visit, served):
    """It once overlapped the text, because nothing else gave its bar a height."""
    page = visit(served, served_with([INFLECTOR, PARSER], [], "went"))
    page.wait_for_selector("#model:visible")
    choice, text = page.locator("#model").bounding_box(), page.locator("#source").bounding_box()
    assert choice["y"] + choice["height"] <= text["y"]


def test_a_language_model_generates_when_the_button_is_pressed(visit, served):
    questions = []
    page = visit(served, served_with([WRITER], questions, " ran away."))
    page.fill("#source", "The dog")
    page.fill("#temperature", "0.5")
    page.click("#generate")
    page.wait_for_function(WRITTEN, arg=" ran away.")
    assert questions == [
        {"text": "The dog", "model": "writer", "length": 200, "temperature": 0.5, "top_k": 5, "top_p": 0.9, "seed": 3}
    ]
