// Transcribes the recording that is given, and shows the transcript.

import { ApiError, transcribe } from "./api.js";
import { find } from "../../viewer/static/dom.js";
import { showError, showMessage, showWaiting } from "./messages.js";
import { loadSound, unloadSound } from "./player.js";
import { hideRecording, playWord, showRecording } from "./recording-view.js";
import { latestOnly, withRetry } from "./retry.js";
import { formatBytes, formatDuration, onSoundInput, setSoundLimits, showSoundInput } from "./sound-input.js";
import { setStale, showTarget } from "./target.js";
import { readTranscript } from "./transcript.js";

/**
 * @typedef {import("./api.js").Model} Model
 * @typedef {import("./transcript.js").HeardText} HeardText
 */

const NOTHING_HEARD = "Nothing was heard in this recording.";
const TOO_MUCH = ["answer_too_large", "too_much_work"]; // codes of errors if a recording is too long for details
const FORM_BYTES = 2048; // of a request, beside the recording
const UPLOADED = 1; // the share, after which the server transcribes
const progress = find("progress", HTMLProgressElement);
const runLatest = latestOnly();

const state = {
  limits: { bytes: Infinity, seconds: Infinity },
  /** @type {Model | null} */
  model: null,
  /** @type {File | null} */
  file: null,
};

/**
 * Keep to the limits of the server.
 * @param {Record<string, number> | undefined} limits
 */
export function setTranscriptionLimits(limits) {
  const bytes = (limits?.audio_bytes ?? Infinity) - FORM_BYTES;
  state.limits = { bytes, seconds: limits?.recording_seconds ?? Infinity };
  setSoundLimits(state.limits);
}

/**
 * Transcribe with a model from now on, beginning with the recording that was given last; null: no longer.
 * @param {Model | null} model
 */
export function transcribeWith(model) {
  if (!model && !state.model) return;
  stop();
  state.model = model;
  showSoundInput(Boolean(model));
  transcribeFile();
}

/** Transcribe the present file. */
async function transcribeFile() {
  const { file, model } = state;
  if (!file || !model) return;
  clearTranscript();
  find("file-name", HTMLElement).textContent = file.name;
  const startedAt = performance.now();
  try {
    const transcript = await runLatest((signal) => requestTranscript(file, model, signal));
    if (!transcript) return; // cancelled, or a newer one is running
    showMessage(transcript.text.trim() ? "" : NOTHING_HEARD);
    find("duration", HTMLElement).textContent = `${Math.round(performance.now() - startedAt)} ms`;
    showTranscript(readTranscript(transcript), model);
  } catch (error) {
    showError(error);
  }
  showBusy(false);
}

/**
 * @param {File} file
 * @param {Model} model
 * @param {AbortSignal} signal
 */
async function requestTranscript(file, model, signal) {
  showBusy(true);
  const seconds = await loadSound(file);
  signal.throwIfAborted();
  checkLimits(file.size, seconds ?? 0);
  const send = (/** @type {boolean} */ details) => {
    showProgress(0);
    return transcribe({ file, model: model.name, details }, signal, showProgress);
  };
  try {
    return await withRetry(() => send(true), signal, showWaiting);
  } catch (error) {
    if (!(error instanceof ApiError) || !TOO_MUCH.includes(error.code)) throw error;
    return withRetry(() => send(false), signal, showWaiting);
  }
}

/**
 * Throw an error that names the limit if a recording is above it, before it is sent.
 * @param {number} bytes
 * @param {number} seconds 0 if the browser does not know
 */
function checkLimits(bytes, seconds) {
  const { limits } = state;
  if (bytes > limits.bytes)
    throw new ApiError(`The file has ${formatBytes(bytes)}; the server accepts ${formatBytes(limits.bytes)}.`);
  if (seconds > limits.seconds && Number.isFinite(seconds)) {
    throw new ApiError(`The recording takes ${formatDuration(seconds)}; the server accepts ${formatDuration(limits.seconds)}.`);
  }
}

/** @param {boolean} isBusy */
function showBusy(isBusy) {
  find("progress-row", HTMLElement).hidden = !isBusy;
  setStale(isBusy);
}

/** @param {number} share of the recording that has been sent */
function showProgress(share) {
  const isUploaded = share >= UPLOADED;
  if (isUploaded) progress.removeAttribute("value");
  else progress.value = share;
  progress.setAttribute("aria-label", isUploaded ? "Transcribing" : "Uploading");
  showMessage(isUploaded ? "Transcribing …" : "Uploading …");
}

/** Abort the request if there is one, and remove the transcript. */
function stop() {
  runLatest(async () => undefined);
  showBusy(false);
  showMessage("");
  clearTranscript();
}

function clearTranscript() {
  hideRecording();
  unloadSound();
  find("file-name", HTMLElement).textContent = "";
  showTarget("", "", null);
  for (const id of ["copy", "duration"]) find(id, HTMLElement).hidden = true;
}

/**
 * @param {HeardText} transcript
 * @param {Model} model
 */
function showTranscript(transcript, model) {
  const { text, words } = transcript;
  const play = (/** @type {{ start: number }} */ { start }) => {
    const word = words.find((each) => each.start === start);
    if (word) playWord(word);
  };
  const elements = showTarget(text, model.target, play, withGaps(transcript));
  for (const id of ["copy", "duration"]) find(id, HTMLElement).hidden = !text;
  showRecording(transcript, elements);
}

/**
 * Return the words of a text with what is between them.
 * @param {HeardText} transcript
 */
function withGaps({ text, words }) {
  const ends = [0, ...words.map(({ end }) => end)];
  const gap = (/** @type {number} */ start, /** @type {number} */ end) => ({
    text: text.slice(start, end),
    start,
    end,
    isWord: false,
  });
  return [...words.flatMap((word, i) => [gap(ends[i] ?? 0, word.start), word]), gap(ends.at(-1) ?? 0, text.length)];
}

onSoundInput((file) => {
  state.file = file;
  transcribeFile();
});
find("cancel", HTMLButtonElement).onclick = () => {
  stop();
  state.file = null;
  find("record", HTMLButtonElement).focus();
};
