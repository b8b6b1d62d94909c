// The recording below its transcript: spectrogram and attention, linked to the words, and its sound.

import { readTheme } from "../../viewer/static/colours.js";
import { find } from "../../viewer/static/dom.js";
import { currentSeconds, followPosition, play, seek } from "./player.js";
import { drawingHeight, drawStretch, formatTime } from "./spectrogram.js";

/**
 * @typedef {import("./transcript.js").HeardText} HeardText
 * @typedef {import("./transcript.js").HeardWord} HeardWord
 */

const MIN_SCALE = 100; // pixels per second
const MAX_SCALE = 400;
const NEAR_SECONDS = 0.2; // how far from a word the pointer still chooses it
const MARGIN_SECONDS = 0.1; // played before and after a word
const KEY_SECONDS = 0.5;
const NO_WORD = "Point at a word to see where it was heard; click it to hear it.";

const section = find("recording", HTMLElement);
const scroller = find("recording-scroller", HTMLElement);
const strip = find("recording-strip", HTMLElement);
const canvas = find("recording-canvas", HTMLCanvasElement);
const cursor = find("recording-cursor", HTMLElement);

const state = {
  /** @type {HeardText | null} */
  text: null,
  /** @type {HTMLElement[]} of the words, on the page */
  elements: [],
  /** @type {HeardWord | null} */
  word: null,
  scale: MIN_SCALE,
  frame: 0, // the request to draw
};

/**
 * Show a recording with its transcript.
 * @param {HeardText} text
 * @param {HTMLElement[]} elements those of the words, in order
 */
export function showRecording(text, elements) {
  Object.assign(state, { text, elements, word: null });
  elements.forEach((element, i) => linkWord(element, text.words[i]));
  section.hidden = false;
  scroller.scrollLeft = 0;
  strip.setAttribute("aria-valuemax", text.seconds.toFixed(2));
  find("recording-word", HTMLElement).textContent = NO_WORD;
  resize();
  showPosition(0, false);
}

export function hideRecording() {
  section.hidden = true;
  Object.assign(state, { text: null, elements: [], word: null });
}

/**
 * Play what was heard as a word.
 * @param {HeardWord} word
 */
export const playWord = ({ startSeconds, endSeconds }) =>
  play(Math.max(0, startSeconds - MARGIN_SECONDS), endSeconds + MARGIN_SECONDS);

/**
 * @param {HTMLElement} element
 * @param {HeardWord | undefined} word
 */
function linkWord(element, word) {
  if (!word) return;
  element.title = describeTimes(word);
  element.onpointerenter = element.onfocus = () => (chooseWord(word), reveal(word));
  element.onpointerleave = element.onblur = () => chooseWord(null);
}

/** @param {HeardWord} word */
const describeTimes = ({ startSeconds, endSeconds }) => `${startSeconds.toFixed(2)} to ${endSeconds.toFixed(2)} s`;

/**
 * Show where a word was heard; without one, where all of them were.
 * @param {HeardWord | null} word
 */
function chooseWord(word) {
  if (state.word === word) return;
  state.word = word;
  state.elements.forEach((element, i) => element.classList.toggle("heard", Boolean(word) && state.text?.words[i] === word));
  find("recording-word", HTMLElement).textContent = word ? `${word.text}: ${describeTimes(word)}` : NO_WORD;
  redraw();
}

/**
 * Scroll to a word or another stretch if it is not visible.
 * @param {{ startSeconds: number, endSeconds: number }} stretch
 */
function reveal({ startSeconds, endSeconds }) {
  const [left, right] = [startSeconds * state.scale, endSeconds * state.scale];
  const isVisible = left >= scroller.scrollLeft && right <= scroller.scrollLeft + scroller.clientWidth;
  if (!isVisible) scroller.scrollLeft = (left + right - scroller.clientWidth) / 2;
}

/**
 * Return the word that was heard at a time, or close to it.
 * @param {number} seconds
 * @param {number} tolerance in seconds
 * @returns {HeardWord | null}
 */
function wordAt(seconds, tolerance) {
  const distance = (/** @type {HeardWord} */ word) => Math.max(word.startSeconds - seconds, seconds - word.endSeconds, 0);
  const words = state.text?.words ?? [];
  const nearest = words.reduce(
    (/** @type {HeardWord | null} */ best, word) => (best && distance(best) <= distance(word) ? best : word),
    null,
  );
  return nearest && distance(nearest) <= tolerance ? nearest : null;
}

/** @param {PointerEvent | MouseEvent} event */
const timeOf = (event) => Math.max(0, (event.clientX - strip.getBoundingClientRect().left) / state.scale);

// ---- position

/**
 * @param {number} seconds
 * @param {boolean} isFollowed whether the words are shown as they are heard
 */
function showPosition(seconds, isFollowed) {
  const { text } = state;
  if (!text) return;
  const digits = text.seconds < 60 ? 1 : 0;
  find("recording-position", HTMLElement).textContent = `${formatTime(seconds, digits)} / ${formatTime(text.seconds, digits)}`;
  cursor.style.translate = `${seconds * state.scale}px`;
  strip.setAttribute("aria-valuenow", seconds.toFixed(2));
  const word = wordAt(seconds, 0);
  strip.setAttribute("aria-valuetext", `${formatTime(seconds, 1)}${word ? `, ${word.text}` : ""}`);
  if (!isFollowed || strip.matches(":hover")) return;
  chooseWord(word);
  reveal(word ?? { startSeconds: seconds, endSeconds: seconds });
}

/** @param {KeyboardEvent} event */
function onKey(event) {
  const end = state.text?.seconds ?? 0;
  /** @type {Record<string, number>} */
  const steps = {
    ArrowRight: KEY_SECONDS,
    ArrowUp: KEY_SECONDS,
    ArrowLeft: -KEY_SECONDS,
    ArrowDown: -KEY_SECONDS,
    Home: -end,
    End: end,
  };
  const step = steps[event.key];
  if (step === undefined) return;
  event.preventDefault();
  seek(Math.min(end, Math.max(0, currentSeconds() + step)));
}

// ---- drawing

function resize() {
  if (!state.text) return;
  const width = scroller.clientWidth;
  state.scale = Math.min(MAX_SCALE, Math.max(MIN_SCALE, width / Math.max(0.1, state.text.seconds)));
  const length = state.text.seconds * state.scale;
  strip.style.width = `${length}px`;
  canvas.style.width = `${Math.min(width, length)}px`; // only what is visible is drawn
  canvas.style.height = `${drawingHeight(state.text)}px`;
  redraw();
}

/** Draw before the next frame. */
function redraw() {
  cancelAnimationFrame(state.frame);
  state.frame = requestAnimationFrame(() => {
    const { text, word, scale } = state;
    if (!text) return;
    const stretch = { left: scroller.scrollLeft, width: canvas.clientWidth, scale };
    drawStretch(canvas, stretch, {
      text,
      word,
      theme: readTheme(section, "--"),
      heat: getComputedStyle(cursor).backgroundColor,
    });
  });
}

scroller.onscroll = redraw;
new ResizeObserver(resize).observe(scroller);
new MutationObserver(redraw).observe(document.documentElement, { attributeFilter: ["data-theme"] });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
strip.onpointermove = (/** @type {PointerEvent} */ event) => chooseWord(wordAt(timeOf(event), NEAR_SECONDS));
strip.onpointerleave = () => chooseWord(null);
strip.onclick = (/** @type {MouseEvent} */ event) => seek(timeOf(event));
strip.onkeydown = onKey;
followPosition(showPosition);
