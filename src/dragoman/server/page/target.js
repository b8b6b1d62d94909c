// The translation as it stands on the page: words that can be pointed at, copied as one text.

import { find, make, rove } from "./elements.js";
import { words } from "./passages.js";

/** @typedef {{ start: number, end: number, element: HTMLElement }} Place of a word in the translation */

const panel = find("target", HTMLDivElement);

/**
 * Draw a translation; `asked` is called with a word that was clicked, or chosen by Enter.
 * @param {string} text
 * @param {string} language
 * @param {((word: Place) => void) | null} asked null where no word can be asked for
 */
export function draw(text, language, asked) {
  const nodes = asked
    ? words(text, language).map((piece) => (piece.word ? drawWord(piece, asked) : piece.text))
    : [text];
  panel.replaceChildren(...nodes);
  panel.lang = language;
  rove(panel, [...panel.querySelectorAll("span")]);
  find("target-said", HTMLElement).textContent = text;
}

/**
 * Put the keyboard on the word at this place, or on the one before.
 * @param {number} place
 */
export function focusWord(place) {
  const starts = [...panel.querySelectorAll("span")].map((word) => ({ word, start: Number(word.dataset.start) }));
  starts.findLast(({ start }) => start <= place)?.word.focus({ preventScroll: true });
}

/**
 * @param {import("./passages.js").Piece} piece
 * @param {(word: Place) => void} asked
 */
function drawWord({ text, start, end }, asked) {
  // A span, not a button: the text of a button cannot be selected.
  const element = make("span", { className: "word", role: "button" }, text);
  element.dataset.start = String(start);
  element.onclick = () => {
    if (document.getSelection()?.isCollapsed ?? true) asked({ start, end, element });
  };
  element.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    asked({ start, end, element });
  });
  return element;
}

/**
 * Say by a paler translation that a newer one is on its way.
 * @param {boolean} old
 */
export function setOld(old) {
  panel.classList.toggle("old", old);
  panel.setAttribute("aria-busy", String(old));
}

/**
 * Copy a text, and say so on the button.
 * @param {string} text
 * @param {HTMLButtonElement} button
 */
export async function copy(text, button) {
  const done = await navigator.clipboard?.writeText(text).then(
    () => true,
    () => false,
  );
  if (!done) selectAll();
  button.textContent = done ? "Copied" : "Press Ctrl+C";
  setTimeout(() => (button.textContent = "Copy"), 2000);
}

/** Select the translation, for a browser that lets no script copy (one that reached us without https). */
function selectAll() {
  const selection = document.getSelection();
  selection?.selectAllChildren(panel);
}
