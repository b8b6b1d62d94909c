// The difference between the first record and the current one: changed words, causes and undo.

import { diffWords } from "./diff.js";
import { button, make } from "./dom.js";

/**
 * @typedef {import("./attention-data.js").AttentionRecord} AttentionRecord
 * @typedef {{ text: string, undo: () => void }} Cause
 */

/** @param {AttentionRecord} record */
const targetWords = (record) => record.target.words.filter((word) => !word.special);

/**
 * @param {AttentionRecord} before
 * @param {AttentionRecord} after
 */
function changedWords(before, after) {
  const labels = (/** @type {AttentionRecord} */ record) => targetWords(record).map((word) => word.label);
  return diffWords(labels(before), labels(after));
}

/**
 * Return the pieces of the output that are new.
 * @param {AttentionRecord} before
 * @param {AttentionRecord} after
 */
export function changedPieces(before, after) {
  const words = targetWords(after);
  const added = changedWords(before, after).added.flatMap((index) => words[index] ?? []);
  return new Set(added.flatMap(({ first, end }) => Array.from({ length: end - first }, (_, i) => first + i)));
}

/**
 * Return a box that lists the changed words and the causes.
 * @param {AttentionRecord} before
 * @param {AttentionRecord} after
 * @param {Cause[]} causes
 * @param {() => void} undo
 */
export function changesBox(before, after, causes, undo) {
  const words = targetWords(before);
  const { removed, added } = changedWords(before, after);
  const count = Math.max(removed.length, added.length);
  const summary = count ? `${count} of ${words.length} words changed. Before:` : "The output did not change.";
  const row = make("div", { className: "dv-row" }, ...causes.map(chip), button("Undo all", undo));
  const box = make("div", { className: "dv-changes" }, row, make("p", { className: "dv-note" }, summary));
  if (count) box.append(oldText(before, removed));
  return box;
}

/**
 * Return the previous output, with removed words struck through.
 * @param {AttentionRecord} before
 * @param {number[]} removed
 */
function oldText(before, removed) {
  const element = make("p", { className: "dv-before", dir: "auto" });
  let done = 0;
  targetWords(before).forEach((word, i) => {
    const [start, stop] = word.span ?? [done, done];
    element.append(word.span ? before.target.text.slice(done, start) : " ");
    element.append(removed.includes(i) ? make("del", {}, word.label) : word.label);
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
