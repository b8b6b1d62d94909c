// Plays the recording, as a whole or one moment of it.

import { find } from "../../viewer/static/dom.js";

const audio = find("player", HTMLAudioElement);
const button = find("play", HTMLButtonElement);

const state = {
  url: "",
  endSeconds: Infinity, // where to stop
  /** @type {(seconds: number, isFollowed: boolean) => void} */
  onPosition: () => undefined,
};

/**
 * Load a recording; return its length in seconds, or null if the browser cannot play it. The promise is never settled if
 * another recording is loaded first.
 * @param {File} file
 * @returns {Promise<number | null>}
 */
export function loadSound(file) {
  unloadSound();
  state.url = URL.createObjectURL(file);
  return new Promise((resolve) => {
    audio.onloadedmetadata = () => ((button.disabled = false), resolve(audio.duration));
    audio.onerror = () => ((button.title = "This browser cannot play this file."), resolve(null));
    audio.src = state.url;
  });
}

export function unloadSound() {
  audio.pause();
  audio.removeAttribute("src");
  audio.load();
  URL.revokeObjectURL(state.url);
  button.disabled = true;
  button.title = "";
}

export const pause = () => audio.pause();

/**
 * Call this with the position whenever it changes, and with whether the recording plays as a whole.
 * @param {(seconds: number, isFollowed: boolean) => void} onPosition
 */
export function followPosition(onPosition) {
  state.onPosition = onPosition;
}

/**
 * Play from one time to another.
 * @param {number} startSeconds
 * @param {number} endSeconds
 */
export function play(startSeconds, endSeconds = Infinity) {
  if (button.disabled) return;
  state.endSeconds = endSeconds;
  audio.currentTime = startSeconds;
  audio.play().catch(() => undefined); // interrupted by a pause
}

/**
 * Go to a time, and play on from there if it is playing.
 * @param {number} seconds
 */
export function seek(seconds) {
  state.endSeconds = Infinity;
  audio.currentTime = seconds;
}

export const currentSeconds = () => audio.currentTime;

function toggle() {
  if (!audio.paused) return audio.pause();
  play(audio.ended ? 0 : audio.currentTime);
}

/** Show the position at each frame while the recording plays. */
function tick() {
  if (audio.currentTime >= state.endSeconds) audio.pause();
  showPosition();
  if (!audio.paused) requestAnimationFrame(tick);
}

const showPosition = () => state.onPosition(audio.currentTime, !audio.paused && state.endSeconds === Infinity);

function showState() {
  button.setAttribute("aria-pressed", String(!audio.paused));
  button.setAttribute("aria-label", audio.paused ? "Play the recording" : "Pause");
  tick();
}

button.onclick = toggle;
audio.onplay = audio.onpause = audio.onended = showState;
audio.onseeked = showPosition;
