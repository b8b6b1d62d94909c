// A look inside a checkpoint, with the same viewer as everywhere. It is computed only when asked for.

import {fillChoice, find, make} from "./elements.js";
import {whole} from "./numbers.js";

/** @typedef {import("./summary.js").Summary} Summary */
/** @typedef {{text?: string, checkpoint?: number | null, prefix?: string, trace?: boolean, ablate_heads?: unknown[]}} Change */

const form = find("look", HTMLFormElement);
const text = find("text", HTMLInputElement);
const sentences = find("sentences", HTMLDataListElement);
const checkpoint = find("checkpoint", HTMLSelectElement);
const note = find("look-note", HTMLParagraphElement);
const root = find("viewer", HTMLDivElement);
const button = /** @type {HTMLButtonElement} */ (form.querySelector("button"));

/** @type {{update(look: any): void, destroy(): void} | null} */
let viewer = null;
let asked = 0;
let proposed = "";
let shown = ""; // the sentence in the viewer, whatever is being typed meanwhile

/** Offer the sentences and checkpoints that there are. @param {Summary} summary */
export function offerLooks({samples, checkpoints}) {
  const sources = samples.map(({source}) => source).filter(Boolean);
  sentences.replaceChildren(...sources.map((source) => Object.assign(make("option"), {value: source})));
  const first = sources[0] ?? proposed;
  const untouched = text.value === proposed && document.activeElement !== text; // who is about to type is left alone
  if (untouched && first !== proposed) text.value = proposed = first;
  const steps = [...checkpoints].reverse();
  fillChoice(checkpoint, [["", steps.length ? "newest" : "none yet"], ...steps.map((step) => /** @type {[string, string]} */ ([String(step), `step ${whole(step)}`]))]);
  checkpoint.disabled = !steps.length;
  button.disabled = !steps.length;
  if (!viewer && !note.textContent) note.textContent = steps.length ? "" : "There is something to see when the first checkpoint is saved.";
  if (steps.length && note.textContent.startsWith("There is something")) note.textContent = "";
}

/**
 * Ask for a look.
 * @param {Change} change
 * @returns {Promise<any>}
 */
async function ask(change) {
  const question = new URLSearchParams({text: change.text ?? shown});
  const step = change.checkpoint ?? checkpoint.value;
  if (step) question.set("checkpoint", String(step));
  if (change.prefix) question.set("prefix", change.prefix);
  if (change.trace) question.set("trace", "true");
  if (change.ablate_heads?.length) question.set("without", JSON.stringify(change.ablate_heads));
  const answer = await fetch(`look?${question}`);
  const said = await answer.json();
  if (!answer.ok) throw new Error(said.error);
  note.textContent = said.checkpoint === null ? "" : `Checkpoint of step ${whole(said.checkpoint)}.`;
  return said;
}

/** @returns {Promise<any>} the checkpoints that can be looked at */
const checkpoints = async () => (await fetch("checkpoints")).json();

/** Show what was asked for. */
async function look() {
  const question = ++asked;
  note.textContent = "Reading the sentence; the first look takes some seconds.";
  root.classList.add("waiting");
  try {
    shown = text.value;
    const found = await ask({});
    if (question !== asked) return;
    if (viewer) viewer.update(found);
    else viewer = (await import("../../viewer/static/viewer.js")).show(root, found, {rerun: ask, checkpoints});
  } catch (error) {
    if (question === asked) note.textContent = error instanceof Error && error.message ? error.message : "There was no answer.";
  } finally {
    if (question === asked) root.classList.remove("waiting");
  }
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  if (text.value.trim()) void look();
});
checkpoint.addEventListener("change", () => {
  if (viewer && text.value.trim()) void look();
});
