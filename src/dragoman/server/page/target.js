// The translation on the page: words that can be clicked, and one text that can be copied.

import { find, make, roveFocus } from "../../viewer/static/dom.js";
import { splitWords } from "./segments.js";

/** @typedef {import("./segments.js").TextSpan} TextSpan */
/** @typedef {{ start: number, end: number, element: HTMLElement }} TargetWord */

const panel = find("target", HTMLDivElement);

/**
 * Show a translation or a transcript; `onWord` is called with a word that is clicked or chosen by Enter.
 * @param {string} text
 * @param {string} language
 * @param {((word: TargetWord) => void) | null} onWord null: words cannot be chosen
 * @param {TextSpan[]} [spans] the words and what is between them
 * @returns {HTMLElement[]} the words
 */
export function showTarget(text, language, onWord, spans = onWord ? splitWords(text, language) : []) {
  const nodes = onWord ? spans.map((span) => (span.isWord ? createWord(span, onWord) : span.text)) : [text];
  panel.replaceChildren(...nodes);
  panel.lang = language;
  const words = [...panel.querySelectorAll("span")];
  roveFocus(panel, words);
  find("target-status", HTMLElement).textContent = text;
  return words;
}

/**
 * Focus the word at a character offset, or the one before it.
 * @param {number} offset
 */
export function focusWord(offset) {
  const starts = [...panel.querySelectorAll("span")].map((word) => ({ word, start: Number(word.dataset.start) }));
  starts.findLast(({ start }) => start <= offset)?.word.focus({ preventScroll: true });
}

/**
 * @param {TextSpan} span
 * @param {(word: TargetWord) => void} onWord
 */
function createWord({ text, start, end }, onWord) {
  // A span, not a button: the text of a button cannot be selected.
  const element = make("span", { className: "word", role: "button" }, text);
  element.dataset.start = String(start);
  element.onclick = () => {
    if (document.getSelection()?.isCollapsed ?? true) onWord({ start, end, element });
  };
  element.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    onWord({ start, end, element });
  });
  return element;
}

/**
 * Show the translation paler while a newer one is being made.
 * @param {boolean} isStale
 */
export function setStale(isStale) {
  panel.classList.toggle("stale", isStale);
  panel.setAttribute("aria-busy", String(isStale));
}

/**
 * Copy what is shown to the clipboard, and confirm it on the button.
 * @param {HTMLButtonElement} button
 */
export async function copy(button) {
  const done = await navigator.clipboard?.writeText(panel.textContent ?? "").then(
    () => true,
    () => false,
  );
  if (!done) selectAll();
  button.textContent = done ? "Copied" : "Press Ctrl+C";
  setTimeout(() => (button.textContent = "Copy"), 2000);
}

/** Select the translation, for browsers that do not allow scripts to copy (without https). */
function selectAll() {
  const selection = document.getSelection();
  selection?.selectAllChildren(panel);
}
