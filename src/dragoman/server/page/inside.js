// "Look inside": the attention viewer on the sentence above it, loaded when it is first opened.

import { held, hold } from "./address.js";
import { find, make, offer } from "./elements.js";
import { newestOnly } from "./patience.js";
import { attention, checkpoints, Problem, report } from "./service.js";

/**
 * @typedef {import("./service.js").Look} Look
 * @typedef {import("./service.js").LookQuestion} LookQuestion
 * @typedef {{ source: string, target: string, prefix: string, fixed: boolean }} Subject what is looked at; `fixed`
 *   where the translation is not simply the model's best
 * @typedef {{ update: (look: Look) => void, destroy: () => void }} Shown
 * @typedef {{ relook: (change: LookQuestion) => Promise<Look>, report: () => Promise<object | null>,
 *   checkpoints: () => Promise<unknown> }} Actions
 * @typedef {{ show: (root: HTMLElement, look: Look, actions: Actions) => Shown }} Viewer
 */

const root = find("view", HTMLElement);
const said = find("view-said", HTMLElement);
const compare = find("compare", HTMLSelectElement);
const sentence = find("sentence", HTMLSelectElement);
const newest = newestOnly();

const state = {
  open: held().has("look"),
  /** @type {Subject[]} */
  subjects: [],
  model: "",
  /** @type {string[]} models that this one can be compared with */
  others: [],
  /** @type {Shown | null} */
  shown: null,
  drawn: "", // whom the viewer shows: the model and the one beside it
};

/** @type {Promise<Viewer> | undefined} */
let viewer;

/** Load the viewer and its style sheet, once. */
function loaded() {
  const module = () => import(new URL("../viewer/viewer.js", import.meta.url).href);
  viewer ??= Promise.all([module(), styled()]).then(([found]) => found);
  viewer.catch(() => (viewer = undefined)); // the next time may go better
  return viewer;
}

/** @returns {Promise<void>} */
function styled() {
  return new Promise((resolve, reject) => {
    const link = make("link", { rel: "stylesheet", href: new URL("../viewer/viewer.css", import.meta.url).href });
    link.onload = () => resolve();
    link.onerror = () => reject(new Problem("The viewer cannot be loaded."));
    document.head.append(link);
  });
}

/** Return the sentence that is chosen, if there is any. */
const subject = () => state.subjects[Number(sentence.value) || 0] ?? state.subjects[0];

/** Look, and show it. */
async function draw() {
  const now = subject();
  root.hidden = !state.open || !now;
  if (!state.open || !now) return;
  said.textContent = state.shown ? "" : "Looking …";
  root.classList.add("waiting");
  try {
    const answer = await newest((signal) => Promise.all([loaded(), look(now, signal)]));
    if (!answer) return; // a newer one is on its way
    put(...answer);
    said.textContent = "";
  } catch (problem) {
    clear();
    said.textContent = problem instanceof Problem ? problem.message : "The viewer cannot be loaded.";
  }
  root.classList.remove("waiting");
}

/**
 * Return the look at a sentence, with that of another model in it if one is compared with.
 * @param {Subject} now
 * @param {AbortSignal} signal
 * @returns {Promise<Look>}
 */
async function look({ source, target, fixed }, signal) {
  const own = attention({ text: source, model: state.model, ...(fixed && { target }) }, signal);
  const other = compare.value ? attention({ text: source, model: compare.value }, signal) : null;
  return { ...(await own), ...(other && { compare: await other }) };
}

/**
 * Show a look; the viewer keeps what is chosen in it while the models stay the same.
 * @param {Viewer} module
 * @param {Look} found
 */
function put(module, found) {
  const models = JSON.stringify([state.model, compare.value]);
  if (state.shown && state.drawn === models) return state.shown.update(found);
  clear();
  if (compare.value) hold({ tab: "compare" }); // the viewer reads from the address what to begin with
  state.shown = module.show(root, found, actions);
  state.drawn = models;
}

function clear() {
  state.shown?.destroy();
  state.shown = null;
}

/** What the viewer may ask of the server. @type {Actions} */
const actions = {
  relook: (change) => {
    const { source = "", prefix = "" } = subject() ?? {};
    return attention({ text: source, model: state.model, ...(prefix && { prefix }), ...change });
  },
  report: () => report(state.model),
  checkpoints: () => checkpoints(state.model),
};

/**
 * Look at these sentences from now on.
 * @param {Subject[]} subjects
 * @param {string} model
 * @param {string[]} others models that can be compared with
 */
export function lookAt(subjects, model, others) {
  Object.assign(state, { subjects, model, others });
  find("look", HTMLButtonElement).disabled = !subjects.length && !state.open;
  const choices = subjects.map(({ source }, place) => ({ value: String(place), label: shortened(source, place) }));
  offer(sentence, choices, subjects[Number(sentence.value)] ? sentence.value : "0");
  const rivals = [{ value: "", label: "nothing" }, ...others.map((name) => ({ value: name, label: name }))];
  offer(compare, rivals, others.includes(compare.value) ? compare.value : "");
  drawControls();
  draw();
}

/**
 * @param {string} source
 * @param {number} place
 */
const shortened = (source, place) => `${place + 1}: ${source.length > 60 ? `${source.slice(0, 60)} …` : source}`;

function drawControls() {
  find("sentence-choice", HTMLElement).hidden = !state.open || state.subjects.length < 2;
  find("compare-choice", HTMLElement).hidden = !state.open || !state.others.length;
  find("inside-note", HTMLElement).hidden = state.open;
  find("look", HTMLElement).setAttribute("aria-expanded", String(state.open));
}

const button = find("look", HTMLButtonElement);
button.onpointerenter = button.onfocus = () => void loaded().catch(() => undefined); // it will be there when it is wanted
button.onclick = () => {
  state.open = !state.open;
  hold({ look: state.open ? "inside" : "" });
  drawControls();
  draw();
};
sentence.onchange = compare.onchange = draw;
