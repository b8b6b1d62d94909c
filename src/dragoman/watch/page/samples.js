// Samples of the validation set, with the model's outputs at each validation.

import {fillSelect, find, make} from "../../viewer/static/dom.js";
import {formatInteger} from "./numbers.js";

/** @typedef {import("./summary.js").Sample} Sample @typedef {import("./summary.js").Summary} Summary */

const list = find("samples", HTMLOListElement);
const note = find("samples-note", HTMLParagraphElement);
const choice = find("validation", HTMLSelectElement);
const earlier = find("earlier", HTMLButtonElement);
const later = find("later", HTMLButtonElement);

let followsNewest = true; // whether the newest validation is shown
let requests = 0;
let sourceName = "Source";

/** Show the samples of the newest validation, unless another one is selected. @param {Summary} summary */
export function showSamples({validations, samples, reads_recordings}) {
  sourceName = reads_recordings ? "Recording" : "Source";
  const steps = [...validations].reverse();
  find("samples-choice", HTMLElement).hidden = steps.length < 2;
  fillSelect(choice, steps.map((step, i) => ({value: String(step), label: `Step ${formatInteger(step)}${i ? "" : " (newest)"}`})));
  if (followsNewest || choice.selectedIndex < 0) {
    choice.selectedIndex = 0;
    followsNewest = true;
    draw(samples);
  }
  updateButtons();
}

/** Show the samples of the selected validation. */
async function showSelected() {
  followsNewest = choice.selectedIndex === 0;
  updateButtons();
  const request = ++requests;
  const response = await fetch(`samples/${choice.value}`).catch(() => null);
  if (request === requests && response?.ok) draw(await response.json());
}

/** Select another validation. @param {number} offset */
function moveSelection(offset) {
  choice.selectedIndex += offset;
  void showSelected();
}

/** Enable the buttons that have a target. */
function updateButtons() {
  earlier.disabled = choice.selectedIndex >= choice.options.length - 1;
  later.disabled = choice.selectedIndex <= 0;
}

/**
 * Return names of paths, by path, without the folders that all of them have in common.
 * @param {string[]} paths
 * @returns {Map<string, string>}
 */
export function shortNames(paths) {
  const folders = paths.map((path) => path.split("/").slice(0, -1));
  const first = folders[0] ?? [];
  const differing = first.findIndex((part, i) => folders.some((each) => each[i] !== part));
  const common = differing < 0 ? first.length : differing;
  return new Map(paths.map((path) => [path, path.split("/").slice(common).join("/")]));
}

/** Draw samples. @param {Sample[]} samples */
function draw(samples) {
  const known = samples.some(({reference}) => reference);
  note.textContent = !samples.length ? "Samples appear after the first validation."
    : known ? "Underlined words are not in the reference." : "";
  const short = sourceName === "Recording" ? shortNames(samples.map(({source}) => source)) : new Map();
  list.replaceChildren(...samples.map(({source, reference, translation}) => make(
    "li", {},
    ...(source ? [line("source", sourceName, [short.get(source) ?? source])] : []),
    line("translation", "Output", known ? markDifferences(translation, reference) : [translation]),
    ...(reference ? [line("reference", "Reference", [reference])] : []),
  )));
}

/** @param {string} className @param {string} name @param {(string | Node)[]} parts @returns {HTMLElement} */
function line(className, name, parts) {
  const text = make("span", {className: "text"});
  text.dir = "auto";
  text.append(...parts);
  return make("p", {className}, make("span", {className: "name"}, name), text);
}

/** Underline the words of an output that are not in the reference. @param {string} translation @param {string} reference */
function markDifferences(translation, reference) {
  const counts = /** @type {Map<string, number>} */ (new Map());
  for (const word of reference.split(/\s+/)) counts.set(word, (counts.get(word) ?? 0) + 1);
  return translation.split(/(\s+)/).map((word) => {
    const left = counts.get(word) ?? 0;
    counts.set(word, left - 1);
    return left > 0 || !word.trim() ? word : make("u", {}, word);
  });
}

choice.addEventListener("change", () => void showSelected());
earlier.addEventListener("click", () => moveSelection(1));
later.addEventListener("click", () => moveSelection(-1));
