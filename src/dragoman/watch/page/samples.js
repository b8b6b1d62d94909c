// Examples of the validation data, and what the model made of them at each validation.

import {fillChoice, find, make} from "./elements.js";
import {whole} from "./numbers.js";

/** @typedef {import("./summary.js").Sample} Sample @typedef {import("./summary.js").Summary} Summary */

const list = find("samples", HTMLOListElement);
const note = find("samples-note", HTMLParagraphElement);
const choice = find("validation", HTMLSelectElement);
const earlier = find("earlier", HTMLButtonElement);
const later = find("later", HTMLButtonElement);

let newest = true; // the newest validation is shown, whichever that is
let asked = 0;

/** Show the samples of the newest validation, unless another one was chosen. @param {Summary} summary */
export function showSamples({validations, samples}) {
  const steps = [...validations].reverse();
  find("samples-choice", HTMLElement).hidden = steps.length < 2;
  fillChoice(choice, steps.map((step, i) => [String(step), `Step ${whole(step)}${i ? "" : " (newest)"}`]));
  if (newest || choice.selectedIndex < 0) {
    choice.selectedIndex = 0;
    newest = true;
    draw(samples);
  }
  walkable();
}

/** Show the samples of the validation that was chosen. */
async function chosen() {
  newest = choice.selectedIndex === 0;
  walkable();
  const question = ++asked;
  const answer = await fetch(`samples/${choice.value}`).catch(() => null);
  if (question === asked && answer?.ok) draw(await answer.json());
}

/** Choose the validation so many places away. @param {number} places */
function walk(places) {
  choice.selectedIndex += places;
  void chosen();
}

/** Let the buttons work that lead somewhere. */
function walkable() {
  earlier.disabled = choice.selectedIndex >= choice.options.length - 1;
  later.disabled = choice.selectedIndex <= 0;
}

/** Draw samples. @param {Sample[]} samples */
function draw(samples) {
  const known = samples.some(({reference}) => reference);
  note.textContent = !samples.length ? "Examples are tried at each validation; there has been none yet."
    : known ? "Underlined words are not in the reference." : "";
  list.replaceChildren(...samples.map(({source, reference, translation}) => make(
    "li", "", null,
    ...(source ? [line("source", "Source", [source])] : []),
    line("translation", "Output", known ? compared(translation, reference) : [translation]),
    ...(reference ? [line("reference", "Reference", [reference])] : []),
  )));
}

/** @param {string} style @param {string} name @param {(string | Node)[]} parts @returns {HTMLElement} */
function line(style, name, parts) {
  const text = make("span", "text");
  text.dir = "auto";
  text.append(...parts);
  return make("p", style, null, make("span", "name", name), text);
}

/** Mark the words of a translation that its reference does not have. @param {string} translation @param {string} reference */
function compared(translation, reference) {
  const counts = /** @type {Map<string, number>} */ (new Map());
  for (const word of reference.split(/\s+/)) counts.set(word, (counts.get(word) ?? 0) + 1);
  return translation.split(/(\s+)/).map((word) => {
    const left = counts.get(word) ?? 0;
    counts.set(word, left - 1);
    return left > 0 || !word.trim() ? word : make("u", "", word);
  });
}

choice.addEventListener("change", () => void chosen());
earlier.addEventListener("click", () => walk(1));
later.addEventListener("click", () => walk(-1));
