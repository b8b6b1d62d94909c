// The attention viewer for the translated sentences; loaded when it is first opened.

import { ApiError, fetchAttention, fetchCheckpoints, fetchHeadReport } from "./api.js";
import { fillSelect, find, make } from "../../viewer/static/dom.js";
import { latestOnly } from "./retry.js";
import { readUrlState, updateUrlState } from "./url-state.js";

/**
 * @typedef {import("./api.js").AttentionDocument} AttentionDocument
 * @typedef {import("./api.js").AttentionRequest} AttentionRequest
 * @typedef {{ source: string, target: string, prefix: string, fixed: boolean }} InspectedSegment `fixed`: the target is
 *   given, because it is not simply the model's best translation
 * @typedef {{ update: (record: AttentionDocument) => void, destroy: () => void }} View
 * @typedef {{ rerun: (change: AttentionRequest) => Promise<AttentionDocument>, report: () => Promise<object | null>,
 *   checkpoints: () => Promise<unknown> }} Actions
 * @typedef {{ show: (root: HTMLElement, record: AttentionDocument, actions: Actions) => View }} ViewerModule
 */

const VIEWER = new URL("../../viewer/static/", import.meta.url);
const LOAD_ERROR = "The viewer could not be loaded.";
const MAX_LABEL_LENGTH = 60;
const root = find("view", HTMLElement);
const status = find("view-status", HTMLElement);
const comparedModel = find("compare", HTMLSelectElement);
const sentence = find("sentence", HTMLSelectElement);
const toggle = find("inspect", HTMLButtonElement);
const runLatest = latestOnly();

const state = {
  isOpen: readUrlState().has("inspect"),
  /** @type {InspectedSegment[]} */
  segments: [],
  model: "",
  /** @type {string[]} */
  otherModels: [],
  /** @type {View | null} */
  view: null,
  viewedModels: "", // the model and the compared one, as JSON
};

/** @type {Promise<ViewerModule> | undefined} */
let viewerModule;

/** Load the viewer and its style sheet once. */
function loadViewer() {
  viewerModule ??= Promise.all([import(new URL("viewer.js", VIEWER).href), loadStyleSheet()]).then(([module]) => module);
  viewerModule.catch(() => (viewerModule = undefined)); // try again next time
  return viewerModule;
}

/** @returns {Promise<void>} */
function loadStyleSheet() {
  return new Promise((resolve, reject) => {
    const link = make("link", { rel: "stylesheet", href: new URL("viewer.css", VIEWER).href });
    link.onload = () => resolve();
    link.onerror = () => reject(new ApiError(LOAD_ERROR));
    document.head.append(link);
  });
}

/** Return the chosen segment, if there is any. */
const chosenSegment = () => state.segments[Number(sentence.value) || 0] ?? state.segments[0];

/** Request the attention of the chosen segment and show it. */
async function refresh() {
  const segment = chosenSegment();
  root.hidden = !state.isOpen || !segment;
  if (!state.isOpen || !segment) return;
  status.textContent = state.view ? "" : "Loading …";
  root.classList.add("waiting");
  try {
    const loaded = await runLatest((signal) => Promise.all([loadViewer(), fetchRecords(segment, signal)]));
    if (!loaded) return; // a newer request is running
    showRecord(...loaded);
    status.textContent = "";
  } catch (error) {
    destroyView();
    status.textContent = error instanceof ApiError ? error.message : LOAD_ERROR;
  }
  root.classList.remove("waiting");
}

/**
 * Return the attention of a segment, with that of the compared model under the key `compare`.
 * @param {InspectedSegment} segment
 * @param {AbortSignal} signal
 * @returns {Promise<AttentionDocument>}
 */
async function fetchRecords({ source, target, fixed }, signal) {
  const own = fetchAttention({ text: source, model: state.model, ...(fixed && { target }) }, signal);
  const other = comparedModel.value ? fetchAttention({ text: source, model: comparedModel.value }, signal) : null;
  return { ...(await own), ...(other && { compare: await other }) };
}

/**
 * Show a record; the viewer keeps its state while the models stay the same.
 * @param {ViewerModule} module
 * @param {AttentionDocument} record
 */
function showRecord(module, record) {
  const models = JSON.stringify([state.model, comparedModel.value]);
  if (state.view && state.viewedModels === models) return state.view.update(record);
  destroyView();
  if (comparedModel.value) updateUrlState({ tab: "compare" }); // the viewer reads its first tab from the URL
  state.view = module.show(root, record, actions);
  state.viewedModels = models;
}

function destroyView() {
  state.view?.destroy();
  state.view = null;
}

/** The requests that the viewer may send. @type {Actions} */
const actions = {
  rerun: (change) => {
    const { source = "", prefix = "" } = chosenSegment() ?? {};
    return fetchAttention({ text: source, model: state.model, ...(prefix && { prefix }), ...change });
  },
  report: () => fetchHeadReport(state.model),
  checkpoints: () => fetchCheckpoints(state.model),
};

/**
 * Inspect these segments from now on.
 * @param {InspectedSegment[]} segments
 * @param {string} model
 * @param {string[]} otherModels models that can be compared with it
 */
export function inspectSegments(segments, model, otherModels) {
  Object.assign(state, { segments, model, otherModels });
  toggle.disabled = !segments.length && !state.isOpen;
  const options = segments.map(({ source }, index) => ({ value: String(index), label: labelOf(source, index) }));
  fillSelect(sentence, options, segments[Number(sentence.value)] ? sentence.value : "0");
  const models = [{ value: "", label: "nothing" }, ...otherModels.map((name) => ({ value: name, label: name }))];
  fillSelect(comparedModel, models, otherModels.includes(comparedModel.value) ? comparedModel.value : "");
  updateControls();
  refresh();
}

/**
 * @param {string} source
 * @param {number} index
 */
function labelOf(source, index) {
  const shortened = source.length > MAX_LABEL_LENGTH ? `${source.slice(0, MAX_LABEL_LENGTH)} …` : source;
  return `${index + 1}: ${shortened}`;
}

function updateControls() {
  find("sentence-choice", HTMLElement).hidden = !state.isOpen || state.segments.length < 2;
  find("compare-choice", HTMLElement).hidden = !state.isOpen || !state.otherModels.length;
  find("inspection-note", HTMLElement).hidden = state.isOpen;
  toggle.setAttribute("aria-expanded", String(state.isOpen));
}

toggle.onpointerenter = toggle.onfocus = () => void loadViewer().catch(() => undefined); // before it is needed
toggle.onclick = () => {
  state.isOpen = !state.isOpen;
  updateUrlState({ inspect: state.isOpen ? "attention" : "" });
  updateControls();
  refresh();
};
sentence.onchange = comparedModel.onchange = refresh;
