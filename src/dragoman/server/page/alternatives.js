// Other translations: of the whole, or from one word on, as a list that opens beside it.

import { find, make, rove } from "./elements.js";
import { newestOnly } from "./patience.js";
import { Problem, translate } from "./service.js";

/**
 * @typedef {{ source: string, target: string, model: string, prefix: string, whole: boolean, own: boolean }} Asked
 *   what to find other words for: the whole, or the word behind the prefix; `own`: the reader may have a word of theirs
 * @typedef {{ text: string, prefix: string }} Chosen a translation, and how much of it the reader insists on
 */

const WIDTH = 8; // of the beam, and so how many are asked for
const SHOWN = 6;
const list = find("others", HTMLDivElement);
const own = find("own", HTMLInputElement);
const newest = newestOnly();

/**
 * Open the list beside an element; `choose` is called with what the reader takes.
 * @param {Asked} asked
 * @param {HTMLElement} beside
 * @param {(chosen: Chosen) => void} choose
 */
export async function open(asked, beside, choose) {
  const title = titleOf(asked);
  find("others-title", HTMLElement).textContent = title;
  find("own-form", HTMLFormElement).onsubmit = (event) => (event.preventDefault(), takeOwn(asked, choose));
  own.value = "";
  find("own-form", HTMLFormElement).hidden = !asked.own;
  fill([], "Searching …");
  list.showPopover();
  place(beside);
  list.ontoggle = (event) => {
    if (event instanceof ToggleEvent && event.newState === "closed") beside.focus({ preventScroll: true });
  };
  await show(asked, choose).catch((problem) => fill([], said(problem)));
  place(beside);
}

/**
 * Search and list.
 * @param {Asked} asked
 * @param {(chosen: Chosen) => void} choose
 */
async function show(asked, choose) {
  const { source, model, prefix } = asked;
  const question = { text: source, model, n_best: WIDTH, beam: WIDTH, ...(prefix && { prefix }) };
  const found = await newest((signal) => translate(question, signal));
  if (!found) return;
  const others = different(
    found.map(({ text }) => text),
    asked,
  ).slice(0, SHOWN);
  const buttons = others.map((text) => drawOther(text, asked, choose));
  const first = others[0];
  if (first === undefined) fill([], "The model sees no other here.");
  else fill(buttons, differsAtOnce(first, asked) ? "" : "No other word here, but further on:");
  buttons[0]?.focus({ preventScroll: true });
}

/**
 * Continue from the reader's own word.
 * @param {Asked} asked
 * @param {(chosen: Chosen) => void} choose
 */
async function takeOwn({ source, model, prefix }, choose) {
  const word = own.value.trim();
  if (!word) return;
  const wanted = prefix ? `${prefix} ${word}` : word;
  fill([], "Translating …");
  try {
    const found = await newest((signal) => translate({ text: source, model, prefix: wanted }, signal));
    if (!found?.[0]) return;
    list.hidePopover();
    choose({ text: found[0].text, prefix: wanted });
  } catch (problem) {
    fill([], said(problem));
  }
}

/**
 * Return texts that differ from the present one and from each other; those that differ at once come first.
 * @param {string[]} texts
 * @param {Asked} asked
 */
function different(texts, asked) {
  const others = [...new Set(texts)].filter((text) => text !== asked.target);
  return others.sort((one, other) => Number(differsAtOnce(other, asked)) - Number(differsAtOnce(one, asked)));
}

/**
 * Say whether a text differs at the very word that was asked about; of the whole, any difference will do.
 * @param {string} text
 * @param {Asked} asked
 */
function differsAtOnce(text, { target, prefix, whole }) {
  return whole || shared(text, target) <= prefix.length + 1;
}

/**
 * Draw one entry; what it shares with the present translation is pale.
 * @param {string} text
 * @param {Asked} asked
 * @param {(chosen: Chosen) => void} choose
 */
function drawOther(text, { target, prefix }, choose) {
  const same = shared(text, target);
  const hidden = text.startsWith(prefix) ? prefix.length : 0;
  const button = make(
    "button",
    { type: "button", dir: "auto" },
    make("span", { className: "same" }, text.slice(hidden, Math.max(hidden, same)).trimStart()),
    text.slice(Math.max(hidden, same)),
  );
  button.onclick = () => {
    list.hidePopover();
    choose({ text, prefix: upToWord(text, same) });
  };
  return button;
}

/**
 * Return how long the beginning is that two texts share, in whole words.
 * @param {string} one
 * @param {string} other
 */
function shared(one, other) {
  let length = 0;
  while (length < one.length && one[length] === other[length]) length++;
  return one.lastIndexOf(" ", length - (length < one.length ? 0 : 1)) + 1;
}

/**
 * Return a text up to the end of the word that begins at `start`.
 * @param {string} text
 * @param {number} start
 */
function upToWord(text, start) {
  const end = text.indexOf(" ", start);
  return end < 0 ? text : text.slice(0, end);
}

/**
 * @param {HTMLButtonElement[]} buttons
 * @param {string} note
 */
function fill(buttons, note) {
  find("others-list", HTMLElement).replaceChildren(...buttons.map((button) => make("li", {}, button)));
  find("others-said", HTMLElement).textContent = note;
  rove(find("others-list", HTMLElement), buttons);
}

/** @param {unknown} problem */
const said = (problem) => (problem instanceof Problem ? problem.message : String(problem));

/** @param {Asked} asked */
function titleOf({ prefix, whole }) {
  if (whole) return "Alternatives";
  return prefix ? `After “${lastWords(prefix)}”` : "At the beginning";
}

/** @param {string} text */
const lastWords = (text) => text.replace(/^.*?(?=(\s+\S+){3}$)/su, "…");

/**
 * Put the list below an element, within the window.
 * @param {HTMLElement} beside
 */
function place(beside) {
  const box = beside.getBoundingClientRect();
  const left = Math.min(box.left, innerWidth - list.offsetWidth - 12);
  const below = box.bottom + 6;
  const top = below + list.offsetHeight > innerHeight ? Math.max(12, box.top - list.offsetHeight - 6) : below;
  Object.assign(list.style, { left: `${Math.max(12, left)}px`, top: `${top}px` });
}
