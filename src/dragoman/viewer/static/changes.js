// What changed since the first look: which words, by what, and the way back.

import { difference } from "./diff.js";
import { button, make } from "./dom.js";

/**
 * @typedef {import("./look.js").Look} Look
 * @typedef {{ text: string, undo: () => void }} Cause
 */

/** @param {Look} look */
const targetWords = (look) => look.target.words.filter((word) => !word.special);

/**
 * @param {Look} before
 * @param {Look} after
 */
function changedWords(before, after) {
  const labels = (/** @type {Look} */ look) => targetWords(look).map((word) => word.label);
  return difference(labels(before), labels(after));
}

/**
 * Return the pieces of the target that were not there before.
 * @param {Look} before
 * @param {Look} after
 */
export function changedPieces(before, after) {
  const words = targetWords(after);
  const come = changedWords(before, after).come.flatMap((place) => words[place] ?? []);
  return new Set(come.flatMap(({ first, end }) => Array.from({ length: end - first }, (_, i) => first + i)));
}

/**
 * Return a box that tells what is different and why.
 * @param {Look} before
 * @param {Look} after
 * @param {Cause[]} causes
 * @param {() => void} undo
 */
export function changesBox(before, after, causes, undo) {
  const words = targetWords(before);
  const { gone, come } = changedWords(before, after);
  const count = Math.max(gone.length, come.length);
  const told = count ? `${count} of ${words.length} words changed. Before:` : "The translation stays the same.";
  const row = make("div", { className: "dv-row" }, ...causes.map(chip), button("Undo all", undo));
  const box = make("div", { className: "dv-changes" }, row, make("p", { className: "dv-note" }, told));
  if (count) box.append(oldText(before, gone));
  return box;
}

/**
 * Return the text as it was, with what is gone struck through.
 * @param {Look} before
 * @param {number[]} gone
 */
function oldText(before, gone) {
  const element = make("p", { className: "dv-before", dir: "auto" });
  let done = 0;
  targetWords(before).forEach((word, i) => {
    const [start, stop] = word.span ?? [done, done];
    element.append(word.span ? before.target.text.slice(done, start) : " ");
    element.append(gone.includes(i) ? make("del", {}, word.label) : word.label);
    done = Math.max(done, stop);
  });
  return element;
}

/** @param {Cause} cause */
function chip({ text, undo }) {
  const cross = button("×", undo, "dv-plain");
  cross.setAttribute("aria-label", `Undo: ${text}`);
  return make("span", { className: "dv-chip" }, text, cross);
}
