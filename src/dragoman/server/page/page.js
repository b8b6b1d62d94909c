// The page: what is typed is translated, and everything else hangs on that.

import { held, hold } from "./address.js";
import * as alternatives from "./alternatives.js";
import { find } from "./elements.js";
import { lookAt } from "./inside.js";
import { chooser } from "./languages.js";
import { passages } from "./passages.js";
import { newestOnly, patiently, retryNow } from "./patience.js";
import { showPictures } from "./pictures.js";
import { detect, info, languages, Problem, settings, translate, useToken } from "./service.js";
import { copy, draw, focusWord, setOld } from "./target.js";

/**
 * @typedef {import("./passages.js").Passage} Passage
 * @typedef {{ source: string, best: string, text: string, pictures?: string[] }} Answer what was asked, the model's best,
 *   what is shown, and drawings of the best
 */

const source = find("source", HTMLTextAreaElement);
const message = find("message", HTMLElement);
const newest = newestOnly();
const starting = newestOnly();
const PALE_AFTER = 150; // milliseconds: a quick answer should not flicker
const DETECTED = 300; // characters are enough to tell a language by
const SURE = 80; // percent
const number = new Intl.NumberFormat("en");

const state = {
  /** @type {import("./languages.js").Chooser | null} */
  choice: null,
  limit: Infinity,
  delay: 250, // milliseconds without a key, until what was typed is translated
  /** @type {Answer | null} */
  answer: null,
  /** @type {Map<string, { text: string, prefix: string }>} a passage's source, and what the reader took for it */
  taken: new Map(),
};

// ---- messages

/**
 * Say something below the translation, with something to do about it; nothing if the text is empty.
 * @param {string} text
 * @param {{ bad?: boolean, label?: string, act?: () => void }} [how]
 */
function say(text, { bad = false, label = "", act } = {}) {
  message.classList.toggle("shown", Boolean(text)); // not hidden: what was hidden is not read out when it appears
  message.classList.toggle("bad", bad);
  find("message-text", HTMLElement).textContent = text;
  const button = find("message-act", HTMLButtonElement);
  button.hidden = !act;
  button.textContent = label;
  button.onclick = act ?? null;
}

/**
 * @param {Problem} problem
 * @param {number} seconds
 */
const sayWaiting = (problem, seconds) =>
  say(`${problem.message} Trying again in ${seconds} s.`, { label: "Try now", act: retryNow });

/** @param {unknown} problem */
function sayProblem(problem) {
  if (problem instanceof Problem && problem.closed) return askForToken();
  say(problem instanceof Problem ? problem.message : `This page has a fault: ${problem}`, { bad: true });
}

function askForToken() {
  find("token-form", HTMLElement).hidden = find("token-open", HTMLElement).hidden = false;
  const refused = Boolean(find("token", HTMLInputElement).value);
  say(refused ? "The server does not accept this token." : "", { bad: true });
  find("token", HTMLInputElement).focus();
}

// ---- translating

/** Translate what is there now, unless something newer comes. */
async function retranslate() {
  const text = source.value;
  const model = state.choice?.chosen;
  if (!model) return;
  const fits = countLetters();
  if (model.is_language_model) return; // it does so when it is told to
  if (!fits || !text.trim()) return giveUp(text);
  const question = { text: withTabs(text, model), model: model.name, ...(model.raw_text_io ? {} : { pictures: true }) };
  const asked = performance.now();
  const pale = setTimeout(() => setOld(true), PALE_AFTER);
  try {
    const found = await newest((signal) => patiently(() => translate(question, signal), signal, sayWaiting));
    if (!found) return clearTimeout(pale);
    say("");
    find("made", HTMLElement).textContent = `${Math.round(performance.now() - asked)} ms`;
    suggestLanguage(text);
    const best = found[0]?.text ?? "";
    showAnswer({ source: text, best, text: best, pictures: found[0]?.pictures ?? [] });
  } catch (problem) {
    sayProblem(problem);
  }
  clearTimeout(pale);
  setOld(false);
}

/** Have a language model go on with what is there. */
async function write() {
  const text = source.value;
  const model = state.choice?.chosen;
  if (!model?.is_language_model || !countLetters()) return;
  const asked = performance.now();
  setOld(true);
  try {
    const question = { text, model: model.name, ...drawing() };
    const found = await newest((signal) => patiently(() => translate(question, signal), signal, sayWaiting));
    if (!found) return; // something newer is on its way
    say("");
    find("made", HTMLElement).textContent = `${Math.round(performance.now() - asked)} ms`;
    showAnswer({ source: text, best: found[0]?.text ?? "", text: found[0]?.text ?? "" });
  } catch (problem) {
    sayProblem(problem);
  }
  setOld(false);
}

/** Return how a language model is to write, as far as the numbers make sense. */
function drawing() {
  const names = /** @type {const} */ ({ length: "length", temperature: "temperature", top_k: "top-k", top_p: "top-p", seed: "seed" });
  const given = Object.entries(names).flatMap(([name, id]) => {
    const field = find(id, HTMLInputElement);
    return field.value && field.checkValidity() ? [[name, field.valueAsNumber]] : [];
  });
  return Object.fromEntries(given);
}

/**
 * Put tabs where two spaces are, for a model that asks for tabs: they are hard to type here.
 * @param {string} text
 * @param {{ input_hint: string }} model
 */
const withTabs = (text, { input_hint }) => (input_hint.includes("\t") ? text.replace(/ {2,}/g, "\t") : text);

/**
 * Wait for no answer any more.
 * @param {string} text that is not translated, being empty or too long
 */
function giveUp(text) {
  newest(async () => undefined);
  setOld(false);
  if (text.trim()) return;
  say("");
  showAnswer(null);
}

/**
 * Offer another language where the text seems to be in one that is served too.
 * @param {string} text
 */
async function suggestLanguage(text) {
  const choice = state.choice;
  if (!choice?.chosen.has_language_pair || choice.sources.length < 2) return;
  const guess = await detect(text.slice(0, DETECTED)).catch(() => null);
  const language = choice.sources.find(({ value }) => value === guess?.language);
  if (!guess || !language || language.value === choice.chosen.source || guess.confidence < SURE) return;
  if (text !== source.value) return; // typed on since
  say(`This looks like ${language.label}.`, {
    label: `Translate from ${language.label}`,
    act: () => choice.from(language.value),
  });
}

/**
 * Show how long the text is; return whether it is short enough.
 * @returns {boolean}
 */
function countLetters() {
  const length = Array.from(source.value).length;
  const fits = length <= state.limit;
  const limited = Number.isFinite(state.limit);
  const count = find("count", HTMLElement);
  count.textContent = limited ? `${number.format(length)} / ${number.format(state.limit)}` : number.format(length);
  count.classList.toggle("over", !fits);
  find("count-said", HTMLElement).textContent = fits
    ? ""
    : `${number.format(length - state.limit)} characters too many`;
  find("clear", HTMLElement).hidden = !length;
  if (!fits) say(`The text is ${number.format(length - state.limit)} characters too long.`, { bad: true });
  return fits;
}

/** @param {Answer | null} answer */
function showAnswer(answer) {
  if (answer?.source !== state.answer?.source) state.taken.clear();
  state.answer = answer;
  hold({ text: answer?.source ?? "", model: (answer && state.choice?.chosen.name) ?? "" });
  const model = state.choice?.chosen;
  draw(answer?.text ?? "", model?.target ?? "", model?.raw_text_io && !model.is_language_model ? askForWord : null);
  const drawn = answer && answer.text === answer.best; // what was taken instead has no drawing
  showPictures(drawn ? answer.pictures ?? [] : []);
  for (const id of ["copy", "made"]) find(id, HTMLElement).hidden = !answer?.text;
  find("whole", HTMLElement).hidden = !answer?.text || Boolean(model?.is_language_model);
  find("reset", HTMLElement).hidden = !answer || answer.text === answer.best;
  const subjects = present().map(({ source, target }) => ({ source, target, ...subjectOf(source, model) }));
  lookAt(subjects, model?.name ?? "", state.choice?.others().map(({ name }) => name) ?? []);
}

/** Return the passages of what is shown. */
function present() {
  const { answer, choice } = state;
  if (!answer || !choice) return [];
  return passages(withTabs(answer.source, choice.chosen), answer.text, choice.chosen);
}

/**
 * Say of a passage whether its translation is the model's own best, and from where on.
 * @param {string} passage
 * @param {{ raw_text_io: boolean, is_language_model: boolean } | undefined} model whose texts are the reader's own, or are not
 */
function subjectOf(passage, model) {
  if (!model?.raw_text_io || model.is_language_model) return { fixed: false, prefix: "" };
  const taken = state.taken.get(passage);
  return { fixed: Boolean(taken) || present().length > 1, prefix: taken?.prefix ?? "" };
}

// ---- alternatives

/** @param {import("./target.js").Place} word */
function askForWord({ start, element }) {
  const passage = present().find((each) => each.start <= start && start < each.end);
  if (passage) askForOthers(passage, passage.target.slice(0, start - passage.start).trimEnd(), element);
}

/**
 * @param {Passage} passage
 * @param {string | null} prefix of the word to replace; none for the whole
 * @param {HTMLElement} beside
 */
function askForOthers(passage, prefix, beside) {
  const model = state.choice?.chosen.name ?? "";
  const { source, target } = passage;
  const plain = Boolean(state.choice?.chosen.raw_text_io);
  const asked = { source, target, model, prefix: prefix ?? "", whole: prefix === null, own: plain };
  alternatives.open(asked, beside, (chosen) => take(passage, chosen));
}

/**
 * Put what the reader chose in the place of a passage.
 * @param {Passage} passage
 * @param {import("./alternatives.js").Chosen} chosen
 */
function take({ source, start, end }, chosen) {
  if (!state.answer) return;
  const { text } = state.answer;
  state.taken.set(source, chosen);
  showAnswer({ ...state.answer, text: text.slice(0, start) + chosen.text + text.slice(end) });
  focusWord(start + chosen.prefix.length - 1);
}

// ---- what the reader does

/**
 * Wait until nothing has been typed for a moment.
 * @param {() => void} action
 */
function debounced(action) {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(action, source.value.trim() ? state.delay : 0);
  };
}

function swap() {
  const text = state.answer?.text;
  if (text) source.value = text;
  state.choice?.swap();
}

function listen() {
  const soon = debounced(retranslate);
  source.oninput = () => (countLetters(), soon());
  find("clear", HTMLElement).onclick = () => {
    source.value = "";
    source.focus();
    retranslate();
  };
  find("swap", HTMLElement).onclick = swap;
  find("write", HTMLElement).onclick = write;
  find("drawing", HTMLFormElement).onsubmit = (event) => (event.preventDefault(), write());
  find("reset", HTMLElement).onclick = () => {
    state.taken.clear();
    if (state.answer) showAnswer({ ...state.answer, text: state.answer.best });
  };
  find("whole", HTMLElement).onclick = () => {
    const { source, text } = state.answer ?? { source: "", text: "" };
    const asked = state.choice ? withTabs(source, state.choice.chosen) : source;
    askForOthers({ source: asked, target: text, start: 0, end: text.length }, null, find("whole", HTMLElement));
  };
  const button = find("copy", HTMLButtonElement);
  button.onclick = () => copy(state.answer?.text ?? "", button);
  find("token-open", HTMLElement).onclick = () => {
    find("token-form", HTMLElement).hidden = !find("token-form", HTMLElement).hidden;
    find("token", HTMLElement).focus();
  };
  find("token-form", HTMLFormElement).onsubmit = (event) => {
    event.preventDefault();
    useToken(find("token", HTMLInputElement).value);
    find("token-form", HTMLElement).hidden = true;
    start();
  };
}

/** Ask what is served, then translate what may be there already. */
async function start() {
  try {
    const found = await starting((signal) =>
      patiently(() => Promise.all([settings(), languages(), info()]), signal, sayWaiting),
    );
    if (!found) return;
    const [how, spoken, { models }] = found;
    if (how.charLimit && how.charLimit > 0) state.limit = how.charLimit;
    if (how.frontendTimeout) state.delay = Math.min(how.frontendTimeout, 400);
    say("");
    state.choice = null;
    state.choice = chooser(models, spoken, held().get("model"), changed);
    changed();
  } catch (problem) {
    sayProblem(problem);
  }
}

/** Take the languages that were chosen. */
function changed() {
  const model = state.choice?.chosen;
  if (!model) return;
  source.lang = model.source;
  source.placeholder = model.input_hint.replace("\t", "⇥") + (model.input_hint.includes("\t") ? " (⇥: a tab, or two spaces)" : "");
  find("source-label", HTMLElement).textContent = model.input_hint.replace("\t", " tab ");
  find("translator", HTMLElement).setAttribute("aria-label", model.noun);
  for (const id of ["write", "drawing"]) find(id, HTMLElement).hidden = !model.is_language_model;
  const walked = model.raw_text_io && !model.is_language_model;
  const said = walked ? "Translation; arrow keys walk its words, Enter shows other words" : "Output";
  find("target", HTMLElement).setAttribute("aria-label", said);
  if (model.is_language_model) giveUp("");
  retranslate();
}

source.value ||= held().get("text") ?? "";
listen();
start();
