// The page: translates what is typed, and connects all other parts.

import * as alternatives from "./alternatives.js";
import { detectLanguage, fetchInfo, fetchLanguages, fetchSettings, setToken, translate } from "./api.js";
import { find } from "../../viewer/static/dom.js";
import { inspectSegments } from "./inspection.js";
import { createModelChooser } from "./languages.js";
import { showError, showMessage, showWaiting } from "./messages.js";
import { showPictures } from "./pictures.js";
import { latestOnly, withRetry } from "./retry.js";
import { splitSegments } from "./segments.js";
import { copy, focusWord, setStale, showTarget } from "./target.js";
import { setTranscriptionLimits, transcribeWith } from "./transcription.js";
import { readUrlState, updateUrlState } from "./url-state.js";

/**
 * @typedef {import("./segments.js").Segment} Segment
 * @typedef {import("./api.js").Model} Model
 * @typedef {{ source: string, best: string, text: string, pictures?: string[] }} Result the source, the model's best
 *   translation, the translation that is shown, and drawings of the best
 */

const source = find("source", HTMLTextAreaElement);
const runLatest = latestOnly();
const runLatestStart = latestOnly();
const STALE_AFTER = 150; // milliseconds: a fast response should not flicker
const DETECTION_LENGTH = 300; // characters that are enough to detect a language
const MIN_CONFIDENCE = 80; // percent
const SAMPLING_OPTIONS = ["length", "temperature", "top_k", "top_p", "seed"]; // the ids of their inputs
const formatNumber = new Intl.NumberFormat("en").format;

const state = {
  /** @type {import("./languages.js").ModelChooser | null} */
  chooser: null,
  maxLength: Infinity,
  delay: 250, // milliseconds after the last key until the text is translated
  /** @type {Result | null} */
  result: null,
  /** @type {Map<string, { text: string, prefix: string }>} the alternative that the user chose, by source segment */
  chosen: new Map(),
};

// ---- translating

/** Translate the present text, unless a newer one follows. */
async function retranslate() {
  const text = source.value;
  const model = state.chooser?.chosen;
  if (!model) return;
  const fits = updateCharacterCount();
  if (model.is_language_model) return; // waits for the button
  if (!fits || !text.trim()) return clearResult(text);
  const pictures = model.raw_text_io ? {} : { pictures: true };
  const body = { text: withTabs(text, model), model: model.name, ...pictures };
  const staleTimer = setTimeout(() => setStale(true), STALE_AFTER);
  try {
    const translations = await requestLatest(body);
    if (!translations) return clearTimeout(staleTimer);
    suggestLanguage(text);
    const best = translations[0]?.text ?? "";
    showResult({ source: text, best, text: best, pictures: translations[0]?.pictures ?? [] });
  } catch (error) {
    showError(error);
  }
  clearTimeout(staleTimer);
  setStale(false);
}

/** Continue the present text with a language model. */
async function generate() {
  const text = source.value;
  const model = state.chooser?.chosen;
  if (!model?.is_language_model || !updateCharacterCount()) return;
  setStale(true);
  try {
    const samples = await requestLatest({ text, model: model.name, ...samplingOptions() });
    if (!samples) return; // a newer request is running
    showResult({ source: text, best: samples[0]?.text ?? "", text: samples[0]?.text ?? "" });
  } catch (error) {
    showError(error);
  }
  setStale(false);
}

/**
 * Send a request, retry it while the server is busy, and show how long it took; undefined if a newer one replaced it.
 * @param {import("./api.js").TranslateRequest} body
 */
async function requestLatest(body) {
  const startedAt = performance.now();
  const results = await runLatest((signal) => withRetry(() => translate(body, signal), signal, showWaiting));
  if (!results) return undefined;
  showMessage("");
  find("duration", HTMLElement).textContent = `${Math.round(performance.now() - startedAt)} ms`;
  return results;
}

/** Return the sampling options whose inputs are valid. */
function samplingOptions() {
  const options = SAMPLING_OPTIONS.flatMap((name) => {
    const input = find(name, HTMLInputElement);
    return input.value && input.checkValidity() ? [[name, input.valueAsNumber]] : [];
  });
  return Object.fromEntries(options);
}

/**
 * Replace two or more spaces by a tab for models whose input has tabs, which cannot be typed in a text field.
 * @param {string} text
 * @param {{ input_hint: string }} model
 */
const withTabs = (text, { input_hint }) => (input_hint.includes("\t") ? text.replace(/ {2,}/g, "\t") : text);

/**
 * Abort the running request; clear the result if the text is empty.
 * @param {string} text
 */
function clearResult(text) {
  runLatest(async () => undefined);
  setStale(false);
  if (text.trim()) return;
  showMessage("");
  showResult(null);
}

/**
 * Suggest another source language if the text seems to be in one that is served.
 * @param {string} text
 */
async function suggestLanguage(text) {
  const chooser = state.chooser;
  if (!chooser?.chosen.has_language_pair || chooser.sources.length < 2) return;
  const detected = await detectLanguage(text.slice(0, DETECTION_LENGTH)).catch(() => null);
  const language = chooser.sources.find(({ value }) => value === detected?.language);
  if (!detected || !language || language.value === chooser.chosen.source) return;
  if (detected.confidence < MIN_CONFIDENCE || text !== source.value) return;
  showMessage(`Detected language: ${language.label}.`, {
    label: `Translate from ${language.label}`,
    action: () => chooser.chooseSource(language.value),
  });
}

/** Show the number of characters; return whether the text is short enough. */
function updateCharacterCount() {
  const length = Array.from(source.value).length;
  const fits = length <= state.maxLength;
  const excess = `${formatNumber(length - state.maxLength)} character${length - state.maxLength === 1 ? "" : "s"}`;
  const count = find("count", HTMLElement);
  const limit = Number.isFinite(state.maxLength) ? ` / ${formatNumber(state.maxLength)}` : "";
  count.textContent = formatNumber(length) + limit;
  count.classList.toggle("over", !fits);
  find("count-status", HTMLElement).textContent = fits ? "" : `${excess} over the limit`;
  find("clear", HTMLElement).hidden = !length;
  if (!fits) showMessage(`The text is ${excess} too long.`, { isError: true });
  return fits;
}

/** @param {Result | null} result */
function showResult(result) {
  if (result?.source !== state.result?.source) state.chosen.clear();
  state.result = result;
  updateUrlState({ text: result?.source ?? "", model: (result && state.chooser?.chosen.name) ?? "" });
  const model = state.chooser?.chosen;
  showTarget(result?.text ?? "", model?.target ?? "", hasAlternativeWords(model) ? showWordAlternatives : null);
  const hasPictures = result && result.text === result.best; // a chosen alternative has none
  showPictures(hasPictures ? result.pictures ?? [] : []);
  for (const id of ["copy", "duration"]) find(id, HTMLElement).hidden = !result?.text;
  find("alternatives", HTMLElement).hidden = !result?.text || Boolean(model?.is_language_model);
  find("reset", HTMLElement).hidden = !result || result.text === result.best;
  const otherModels = state.chooser?.comparableModels().map(({ name }) => name) ?? [];
  inspectSegments(shownSegments().map((segment) => inspectedSegment(segment, model)), model?.name ?? "", otherModels);
}

/**
 * Whether other words can be requested: the model reads and writes the very text that the user sees.
 * @param {Model | undefined} model
 */
const hasAlternativeWords = (model) => Boolean(model?.raw_text_io && !model.is_language_model);

/** Return the segments of the result that is shown. */
function shownSegments() {
  const { result, chooser } = state;
  if (!result || !chooser) return [];
  return splitSegments(withTabs(result.source, chooser.chosen), result.text, chooser.chosen);
}

/**
 * Return what is inspected: `fixed` if the target is given instead of being translated again.
 * @param {Segment} segment
 * @param {Model | undefined} model
 */
function inspectedSegment({ source, target }, model) {
  if (!hasAlternativeWords(model)) return { source, target, fixed: false, prefix: "" };
  const chosen = state.chosen.get(source);
  return { source, target, fixed: Boolean(chosen) || shownSegments().length > 1, prefix: chosen?.prefix ?? "" };
}

// ---- alternatives

/** @param {import("./target.js").TargetWord} word */
function showWordAlternatives({ start, element }) {
  const segment = shownSegments().find((candidate) => candidate.start <= start && start < candidate.end);
  if (segment) showAlternatives(segment, segment.target.slice(0, start - segment.start).trimEnd(), element);
}

/**
 * @param {Segment} segment
 * @param {string | null} prefix the text before the word to replace; null for the whole segment
 * @param {HTMLElement} anchor
 */
function showAlternatives(segment, prefix, anchor) {
  const { source, target } = segment;
  const model = state.chooser?.chosen;
  const request = {
    source,
    target,
    model: model?.name ?? "",
    prefix: prefix ?? "",
    isWhole: prefix === null,
    allowsOwnWord: Boolean(model?.raw_text_io),
  };
  alternatives.open(request, anchor, (chosen) => replaceSegment(segment, chosen));
}

/**
 * @param {Segment} segment
 * @param {import("./alternatives.js").ChosenAlternative} chosen
 */
function replaceSegment({ source, start, end }, chosen) {
  if (!state.result) return;
  const { text } = state.result;
  state.chosen.set(source, chosen);
  showResult({ ...state.result, text: text.slice(0, start) + chosen.text + text.slice(end) });
  focusWord(start + chosen.prefix.length - 1);
}

// ---- events

/**
 * Delay an action until nothing has been typed for a moment.
 * @param {() => void} action
 */
function debounced(action) {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(action, source.value.trim() ? state.delay : 0);
  };
}

function swapLanguages() {
  const text = state.result?.text;
  if (text) source.value = text;
  state.chooser?.swap();
}

function addEventHandlers() {
  const retranslateSoon = debounced(retranslate);
  source.oninput = () => (updateCharacterCount(), retranslateSoon());
  find("clear", HTMLElement).onclick = () => {
    source.value = "";
    source.focus();
    retranslate();
  };
  find("swap", HTMLElement).onclick = swapLanguages;
  find("generate", HTMLElement).onclick = generate;
  find("sampling", HTMLFormElement).onsubmit = (event) => (event.preventDefault(), generate());
  find("reset", HTMLElement).onclick = () => {
    state.chosen.clear();
    if (state.result) showResult({ ...state.result, text: state.result.best });
  };
  find("alternatives", HTMLElement).onclick = () => {
    const { source, text } = state.result ?? { source: "", text: "" };
    const input = state.chooser ? withTabs(source, state.chooser.chosen) : source;
    const whole = { source: input, target: text, start: 0, end: text.length };
    showAlternatives(whole, null, find("alternatives", HTMLElement));
  };
  const copyButton = find("copy", HTMLButtonElement);
  copyButton.onclick = () => copy(copyButton);
  find("token-open", HTMLElement).onclick = () => {
    find("token-form", HTMLElement).hidden = !find("token-form", HTMLElement).hidden;
    find("token", HTMLElement).focus();
  };
  find("token-form", HTMLFormElement).onsubmit = (event) => {
    event.preventDefault();
    setToken(find("token", HTMLInputElement).value);
    find("token-form", HTMLElement).hidden = true;
    start();
  };
}

/** Load the list of models, then translate the text in the URL. */
async function start() {
  try {
    const loaded = await runLatestStart((signal) =>
      withRetry(() => Promise.all([fetchSettings(), fetchLanguages(), fetchInfo()]), signal, showWaiting),
    );
    if (!loaded) return;
    const [settings, languages, { models, limits }] = loaded;
    if (settings.charLimit && settings.charLimit > 0) state.maxLength = settings.charLimit;
    if (settings.frontendTimeout) state.delay = Math.min(settings.frontendTimeout, 400);
    setTranscriptionLimits(limits);
    showMessage("");
    state.chooser = null;
    state.chooser = createModelChooser(models, languages, readUrlState().get("model"), onModelChange);
    onModelChange();
  } catch (error) {
    showError(error);
  }
}

/** Adapt the page to the chosen model. */
function onModelChange() {
  const model = state.chooser?.chosen;
  if (!model) return;
  const tabNote = model.input_hint.includes("\t") ? " (<tab>: a tab, or two spaces)" : "";
  source.lang = model.source;
  source.placeholder = model.input_hint.replace("\t", "<tab>") + tabNote;
  find("source-label", HTMLElement).textContent = model.input_hint.replace("\t", " tab ");
  find("translator", HTMLElement).setAttribute("aria-label", model.noun);
  for (const [name, value] of Object.entries(model.sampling ?? {})) {
    find(name, HTMLInputElement).defaultValue = String(value); // keeps what the user has entered
  }
  for (const id of ["generate", "sampling"]) find(id, HTMLElement).hidden = !model.is_language_model;
  find("target", HTMLElement).setAttribute("aria-label", targetLabel(model));
  if (model.is_language_model || model.reads_signals) clearResult("");
  find("inspection", HTMLElement).hidden = Boolean(model.reads_signals);
  transcribeWith(model.reads_signals ? model : null);
  if (model.reads_signals) updateUrlState({ model: model.name });
  else retranslate();
}

/** @param {Model} model */
function targetLabel(model) {
  if (model.reads_signals) return "Transcript; arrow keys move between words, Enter plays a word";
  return hasAlternativeWords(model) ? "Translation; arrow keys move between words, Enter shows alternatives" : "Output";
}

source.value ||= readUrlState().get("text") ?? "";
addEventHandlers();
start();
