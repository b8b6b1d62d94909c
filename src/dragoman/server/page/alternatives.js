// A list of alternative translations, of the whole text or from one word on.

import { ApiError, translate } from "./api.js";
import { find, make, roveFocus } from "../../viewer/static/dom.js";
import { latestOnly } from "./retry.js";

/**
 * @typedef {{ source: string, target: string, model: string, prefix: string, isWhole: boolean,
 *   allowsOwnWord: boolean }} AlternativesRequest alternatives to the whole target, or to the word after the prefix
 * @typedef {{ text: string, prefix: string }} ChosenAlternative a translation, and the beginning that the user chose
 */

const BEAM = 8; // also the number of translations requested
const MAX_SHOWN = 6;
const list = find("others", HTMLDivElement);
const ownWord = find("own", HTMLInputElement);
const runLatest = latestOnly();

/**
 * Open the list next to an element; `onChoose` is called with the chosen alternative.
 * @param {AlternativesRequest} request
 * @param {HTMLElement} anchor
 * @param {(chosen: ChosenAlternative) => void} onChoose
 */
export async function open(request, anchor, onChoose) {
  find("others-title", HTMLElement).textContent = titleOf(request);
  const form = find("own-form", HTMLFormElement);
  form.onsubmit = (event) => (event.preventDefault(), translateWithOwnWord(request, onChoose));
  form.hidden = !request.allowsOwnWord;
  ownWord.value = "";
  showEntries([], "Searching …");
  list.showPopover();
  positionList(anchor);
  list.ontoggle = (event) => {
    if (event instanceof ToggleEvent && event.newState === "closed") anchor.focus({ preventScroll: true });
  };
  await search(request, onChoose).catch((error) => showEntries([], messageOf(error)));
  positionList(anchor);
}

/**
 * Request alternatives and list them.
 * @param {AlternativesRequest} request
 * @param {(chosen: ChosenAlternative) => void} onChoose
 */
async function search(request, onChoose) {
  const { source, model, prefix } = request;
  const body = { text: source, model, n_best: BEAM, beam: BEAM, ...(prefix && { prefix }) };
  const translations = await runLatest((signal) => translate(body, signal));
  if (!translations) return;
  const texts = translations.map(({ text }) => text);
  const shown = distinctAlternatives(texts, request).slice(0, MAX_SHOWN);
  const buttons = shown.map((text) => createEntry(text, request, onChoose));
  const first = shown[0];
  if (first === undefined) showEntries([], "The model has no alternatives here.");
  else showEntries(buttons, differsAtWord(first, request) ? "" : "No alternatives for this word; alternatives for later words:");
  if (document.activeElement !== ownWord) buttons[0]?.focus({ preventScroll: true }); // the user may be typing
}

/**
 * Translate with the user's own word after the prefix.
 * @param {AlternativesRequest} request
 * @param {(chosen: ChosenAlternative) => void} onChoose
 */
async function translateWithOwnWord({ source, model, prefix }, onChoose) {
  const word = ownWord.value.trim();
  if (!word) return;
  const newPrefix = prefix ? `${prefix} ${word}` : word;
  showEntries([], "Translating …");
  try {
    const translations = await runLatest((signal) => translate({ text: source, model, prefix: newPrefix }, signal));
    if (!translations?.[0]) return;
    list.hidePopover();
    onChoose({ text: translations[0].text, prefix: newPrefix });
  } catch (error) {
    showEntries([], messageOf(error));
  }
}

/**
 * Return texts that differ from the target and from each other; those that differ at the requested word come first.
 * @param {string[]} texts
 * @param {AlternativesRequest} request
 */
function distinctAlternatives(texts, request) {
  const distinct = [...new Set(texts)].filter((text) => text !== request.target);
  return distinct.sort((a, b) => Number(differsAtWord(b, request)) - Number(differsAtWord(a, request)));
}

/**
 * Return whether a text differs from the target at the requested word; for the whole text, anywhere.
 * @param {string} text
 * @param {AlternativesRequest} request
 */
function differsAtWord(text, { target, prefix, isWhole }) {
  return isWhole || commonPrefixLength(text, target) <= prefix.length + 1;
}

/**
 * Create an entry of the list; what it has in common with the target is paler.
 * @param {string} text
 * @param {AlternativesRequest} request
 * @param {(chosen: ChosenAlternative) => void} onChoose
 */
function createEntry(text, { target, prefix }, onChoose) {
  const common = commonPrefixLength(text, target);
  const hidden = text.startsWith(prefix) ? prefix.length : 0;
  const button = make(
    "button",
    { type: "button", dir: "auto" },
    make("span", { className: "same" }, text.slice(hidden, Math.max(hidden, common)).trimStart()),
    text.slice(Math.max(hidden, common)),
  );
  button.onclick = () => {
    list.hidePopover();
    onChoose({ text, prefix: throughWord(text, common) });
  };
  return button;
}

/**
 * Return the length of the common beginning of two texts, in whole words.
 * @param {string} a
 * @param {string} b
 */
function commonPrefixLength(a, b) {
  let length = 0;
  while (length < a.length && a[length] === b[length]) length++;
  return a.lastIndexOf(" ", length - (length < a.length ? 0 : 1)) + 1;
}

/**
 * Return a text up to the end of the word that begins at `start`.
 * @param {string} text
 * @param {number} start
 */
function throughWord(text, start) {
  const end = text.indexOf(" ", start);
  return end < 0 ? text : text.slice(0, end);
}

/**
 * @param {HTMLButtonElement[]} buttons
 * @param {string} status
 */
function showEntries(buttons, status) {
  find("others-list", HTMLElement).replaceChildren(...buttons.map((button) => make("li", {}, button)));
  find("others-status", HTMLElement).textContent = status;
  roveFocus(find("others-list", HTMLElement), buttons);
}

/** @param {unknown} error */
const messageOf = (error) => (error instanceof ApiError ? error.message : String(error));

/** @param {AlternativesRequest} request */
function titleOf({ prefix, isWhole }) {
  if (isWhole) return "Alternatives";
  return prefix ? `Alternatives after “${lastWords(prefix)}”` : "Alternatives at the beginning";
}

/** @param {string} text */
const lastWords = (text) => text.replace(/^.*?(?=(\s+\S+){3}$)/su, "…");

/**
 * Place the list below an element, inside the window.
 * @param {HTMLElement} anchor
 */
function positionList(anchor) {
  const box = anchor.getBoundingClientRect();
  const left = Math.min(box.left, innerWidth - list.offsetWidth - 12);
  const below = box.bottom + 6;
  const top = below + list.offsetHeight > innerHeight ? Math.max(12, box.top - list.offsetHeight - 6) : below;
  Object.assign(list.style, { left: `${Math.max(12, left)}px`, top: `${top}px` });
}
