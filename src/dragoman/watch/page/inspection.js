// Inspection of a checkpoint with the attention viewer, computed on request.

import {fillSelect, find, make} from "../../viewer/static/dom.js";
import {formatInteger} from "./numbers.js";
import {shortNames} from "./samples.js";

/** @typedef {import("./summary.js").Summary} Summary */
/** @typedef {{text?: string, checkpoint?: number | null, prefix?: string, trace?: boolean, ablate_heads?: unknown[]}} Change */

const form = find("inspection", HTMLFormElement);
const text = find("text", HTMLInputElement);
const label = /** @type {HTMLLabelElement} */ (form.querySelector("label"));
const sentences = find("sentences", HTMLDataListElement);
const checkpoint = find("checkpoint", HTMLSelectElement);
const note = find("inspection-note", HTMLParagraphElement);
const root = find("viewer", HTMLDivElement);
const button = /** @type {HTMLButtonElement} */ (form.querySelector("button"));

const NO_CHECKPOINT = "Available once the first checkpoint is saved.";

/** @type {{update(record: any): void, destroy(): void} | null} */
let viewer = null;
let requests = 0;
let proposed = "";
let shown = ""; // the sentence or recording in the viewer
/** Paths of the recordings that are proposed, by name. @type {Map<string, string>} */
let recordings = new Map();

/** Update the proposed sentences and the checkpoints. @param {Summary} summary */
export function updateInspection({samples, checkpoints, reads_recordings}) {
  const paths = reads_recordings ? shortNames(samples.map(({source}) => source)) : new Map();
  recordings = new Map([...paths].map(([path, name]) => [name, path]));
  const sources = reads_recordings ? [...recordings.keys()] : samples.map(({source}) => source).filter(Boolean);
  label.textContent = text.placeholder = reads_recordings ? "Recording to inspect" : "Sentence to inspect";
  sentences.replaceChildren(...sources.map((value) => make("option", {value})));
  const first = sources[0] ?? proposed;
  const isUntouched = text.value === proposed && document.activeElement !== text;
  if (isUntouched && first !== proposed) text.value = proposed = first;
  const steps = [...checkpoints].reverse();
  fillSelect(checkpoint, [
    {value: "", label: steps.length ? "newest" : "none yet"},
    ...steps.map((step) => ({value: String(step), label: `step ${formatInteger(step)}`})),
  ]);
  checkpoint.disabled = button.disabled = !steps.length;
  if (!steps.length && !viewer) note.textContent = NO_CHECKPOINT;
  else if (note.textContent === NO_CHECKPOINT) note.textContent = "";
}

/**
 * Request an attention record.
 * @param {Change} change
 * @returns {Promise<any>}
 */
async function requestRecord(change) {
  const query = new URLSearchParams({text: change.text ?? shown});
  const step = change.checkpoint ?? checkpoint.value;
  if (step) query.set("checkpoint", String(step));
  if (change.prefix) query.set("prefix", change.prefix);
  if (change.trace) query.set("trace", "true");
  if (change.ablate_heads?.length) query.set("ablate_heads", JSON.stringify(change.ablate_heads));
  const response = await fetch(`inspect?${query}`);
  const body = await response.json();
  if (!response.ok) throw new Error(body.error);
  note.textContent = body.checkpoint === null ? "" : `Checkpoint at step ${formatInteger(body.checkpoint)}.`;
  return body;
}

/** @returns {Promise<any>} */
const loadCheckpoints = async () => (await fetch("checkpoints")).json();

/** Show the attention of the sentence in the form. */
async function inspect() {
  const request = ++requests;
  note.textContent = "Computing the attention; the first request takes a few seconds.";
  root.classList.add("waiting");
  try {
    shown = recordings.get(text.value) ?? text.value;
    const record = await requestRecord({});
    if (request !== requests) return;
    if (viewer) viewer.update(record);
    else {
      const {show} = await import("../../viewer/static/viewer.js");
      viewer = show(root, record, {rerun: requestRecord, checkpoints: loadCheckpoints});
    }
  } catch (error) {
    if (request === requests) note.textContent = (error instanceof Error && error.message) || "The server did not respond.";
  } finally {
    if (request === requests) root.classList.remove("waiting");
  }
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  if (text.value.trim()) void inspect();
});
checkpoint.addEventListener("change", () => {
  if (viewer && text.value.trim()) void inspect();
});
