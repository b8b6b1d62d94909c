// "Look inside": the attention viewer on the sentence above it, loaded when it is first opened.

import { find, make, offer } from "./elements.js";
import { newestOnly } from "./patience.js";
import { attention, checkpoints, Problem, report } from "./service.js";

/**
 * @typedef {import("./service.js").Look} Look
 * @typedef {import("./service.js").LookQuestion} LookQuestion
 * @typedef {{ source: string, target: string, prefix: string, fixed: boolean }} Subject what is looked at; `fixed`
 *   where the translation is not simply the model’s best
 * @typedef {{ update: (look: Look) => void, destroy: () => void }} Shown
 * @typedef {{ relook: (change: LookQuestion) => Promise<Look>, report: () => Promise<object | null>,
 *   checkpoints: () => Promise<unknown> }} Actions
 * @typedef {{ show: (root: HTMLElement, look: Look, actions: Actions) => Shown }} Viewer
 */

const SENTENCE = "another sentence"; // a run can be called by any name, but a value without a colon is none
const views = [...document.querySelectorAll(".view")].filter((each) => each instanceof HTMLElement).map(view);
const compare = find("compare", HTMLSelectElement);
const other = find("other", HTMLInputElement);
const sentence = find("sentence", HTMLSelectElement);
const state = { open: false, subjects: /** @type {Subject[]} */ ([]), model: "", others: /** @type {string[]} */ ([]) };

/** @type {Promise<Viewer> | undefined} */
let viewer;

/** Load the viewer and its style sheet, once. */
function loaded() {
  viewer ??= Promise.all([import(new URL("../viewer/viewer.js", import.meta.url).href), styled()]).then(
    ([module]) => module,
  );
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

/**
 * Return one of the two places where a viewer stands.
 * @param {HTMLElement} element
 */
function view(element) {
  const part = (/** @type {string} */ name) => /** @type {HTMLElement} */ (element.querySelector(`.view-${name}`));
  return {
    element,
    name: part("name"),
    root: part("root"),
    said: part("said"),
    newest: newestOnly(),
    shown: /** @type {Shown | null} */ (null),
    model: "",
  };
}

/**
 * Show a subject in one of the places.
 * @param {ReturnType<typeof view>} place
 * @param {Subject} subject
 * @param {string} model
 */
async function draw(place, subject, model) {
  place.said.textContent = place.shown ? "" : "Looking …";
  place.element.classList.add("waiting");
  const { source, target, fixed } = subject;
  const question = { text: source, model, ...(fixed && { target }) };
  try {
    const answer = await place.newest(async (signal) => Promise.all([loaded(), attention(question, signal)]));
    if (!answer) return; // a newer one is on its way
    put(place, ...answer, subject, model);
    place.said.textContent = "";
  } catch (problem) {
    clear(place);
    place.said.textContent = problem instanceof Problem ? problem.message : "The viewer cannot be loaded.";
  }
  place.element.classList.remove("waiting");
}

/**
 * @param {ReturnType<typeof view>} place
 * @param {Viewer} module
 * @param {Look} look
 * @param {Subject} subject
 * @param {string} model
 */
function put(place, module, look, subject, model) {
  clear(place);
  place.shown = module.show(place.root, look, actions(subject, model));
}

/** @param {ReturnType<typeof view>} place */
function clear(place) {
  place.shown?.destroy();
  place.shown = null;
  place.root.replaceChildren();
}

/**
 * Return what the viewer may ask of the server for this subject.
 * @param {Subject} subject
 * @param {string} model
 * @returns {Actions}
 */
function actions({ source, prefix }, model) {
  return {
    relook: (change) => attention({ text: source, model, ...(prefix && { prefix }), ...change }),
    report: () => report(model),
    checkpoints: () => checkpoints(model),
  };
}

/** Draw what is chosen, in one place or in two. */
function drawAll() {
  const subject = state.subjects[Number(sentence.value) || 0] ?? state.subjects[0];
  find("inside", HTMLElement).hidden = !state.open || !subject;
  if (!state.open || !subject) return;
  const [first, second] = views;
  if (!first || !second) throw new Error("index.html has two views");
  const rival = rivalOf(subject);
  second.element.hidden = first.name.hidden = !compare.value;
  find("inside", HTMLElement).classList.toggle("two", Boolean(compare.value));
  first.name.textContent = compare.value === SENTENCE ? subject.source : state.model;
  draw(first, subject, state.model);
  if (rival) {
    second.name.textContent = rival.name;
    draw(second, rival.subject, rival.model);
  } else clear(second);
}

/**
 * Return what to compare a subject with, if anything.
 * @param {Subject} subject
 */
function rivalOf(subject) {
  const text = other.value.trim();
  if (compare.value === SENTENCE) {
    return text
      ? { name: text, model: state.model, subject: { source: text, target: "", prefix: "", fixed: false } }
      : null;
  }
  const name = compare.value.replace(/^model:/, "");
  return name ? { name, model: name, subject: { ...subject, target: "", prefix: "", fixed: false } } : null;
}

/**
 * Look at these sentences from now on.
 * @param {Subject[]} subjects
 * @param {string} model
 * @param {string[]} others models that can be compared with
 */
export function lookAt(subjects, model, others) {
  Object.assign(state, { subjects, model, others });
  find("look", HTMLButtonElement).disabled = !subjects.length && !state.open;
  const choices = subjects.map(({ source }, place) => ({
    value: String(place),
    label: `${place + 1}: ${source.slice(0, 60)}`,
  }));
  offer(sentence, choices, subjects[Number(sentence.value)] ? sentence.value : "0");
  offerRivals();
  drawControls();
  drawAll();
}

/** List what can be compared with; the choice stays if it can. */
function offerRivals() {
  const models = state.others.map((name) => ({ value: `model:${name}`, label: name }));
  const choices = [{ value: "", label: "nothing" }, ...models, { value: SENTENCE, label: SENTENCE }];
  offer(compare, choices, choices.some(({ value }) => value === compare.value) ? compare.value : "");
}

function drawControls() {
  find("sentence-choice", HTMLElement).hidden = !state.open || state.subjects.length < 2;
  find("compare-choice", HTMLElement).hidden = !state.open;
  find("other-choice", HTMLElement).hidden = !state.open || compare.value !== SENTENCE;
  find("inside-note", HTMLElement).hidden = state.open;
  find("look", HTMLElement).setAttribute("aria-expanded", String(state.open));
}

find("look", HTMLButtonElement).onclick = () => {
  state.open = !state.open;
  drawControls();
  drawAll();
};
sentence.onchange = drawAll;
other.onchange = drawAll;
compare.onchange = () => {
  drawControls();
  drawAll();
  if (compare.value === SENTENCE) other.focus();
};
