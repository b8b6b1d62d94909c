// The recording to transcribe: recorded from the microphone, or a file that is chosen, dropped or pasted.

import { find } from "../../viewer/static/dom.js";
import { showError, showMessage } from "./messages.js";
import { startRecording } from "./recorder.js";
import { pause } from "./player.js";
import { latestOnly } from "./retry.js";
import { formatTime } from "./spectrogram.js";

/** @typedef {import("./recorder.js").Recording} Recording */

const side = find("sound-side", HTMLElement);
const recordButton = find("record", HTMLButtonElement);
const fileInput = find("file", HTMLInputElement);
const runLatest = latestOnly();

const state = {
  /** @type {Recording | null} */
  recording: null,
  limits: { bytes: Infinity, seconds: Infinity },
  /** @type {(file: File) => void} */
  onSound: () => undefined,
};

/**
 * Call this with each recording that the user makes or chooses.
 * @param {(file: File) => void} onSound
 */
export function onSoundInput(onSound) {
  state.onSound = onSound;
}

/** @param {import("./recorder.js").RecordingLimits} limits */
export function setSoundLimits(limits) {
  state.limits = limits;
  find("sound-limits", HTMLElement).textContent = describeLimits(limits);
}

/**
 * Ask for a recording instead of a text, or no longer.
 * @param {boolean} isShown
 */
export function showSoundInput(isShown) {
  if (!isShown) discardRecording();
  side.hidden = !isShown;
  find("text-side", HTMLElement).hidden = isShown;
}

/** @param {import("./recorder.js").RecordingLimits} limits */
function describeLimits({ bytes, seconds }) {
  const size = Number.isFinite(bytes) ? [formatBytes(bytes)] : [];
  const length = Number.isFinite(seconds) ? [formatDuration(seconds)] : [];
  return size.length + length.length ? `Up to ${[...length, ...size].join(", ")}` : "";
}

/** @param {number} bytes */
export const formatBytes = (bytes) => `${Number((bytes / 2 ** 20).toPrecision(2))} MB`;

/** @param {number} seconds */
export const formatDuration = (seconds) =>
  seconds < 120 ? `${Math.round(seconds)} seconds` : `${Math.round(seconds / 60)} minutes`;

// ---- recording

async function toggleRecording() {
  if (state.recording) return state.recording.stop();
  recordButton.disabled = true; // while the browser asks for the permission
  pause(); // or it would be recorded
  showMessage("");
  showNote("");
  try {
    const recording = await runLatest((signal) =>
      startRecording(state.limits, { onProgress: showProgress, onEnd: endRecording }, signal),
    );
    if (recording) showRecordingState((state.recording = recording));
  } catch (error) {
    showError(error);
  }
  recordButton.disabled = false;
}

/**
 * @param {File} file
 * @param {import("./recorder.js").RecordingEnd} end
 */
function endRecording(file, { isFull, isSilent }) {
  showRecordingState((state.recording = null));
  if (isSilent)
    return showMessage("Nothing was heard: the microphone sent no sound. Check that it is not muted.", { isError: true });
  if (isFull) showNote("Recording stopped: the server accepts no longer recordings.");
  state.onSound(file);
}

/** @param {string} text */
const showNote = (text) => (find("recording-note", HTMLElement).textContent = text);

/** Stop without a result. */
function discardRecording() {
  runLatest(async () => undefined); // if it is about to begin
  state.recording?.discard();
  showRecordingState((state.recording = null));
}

/** @param {Recording | null} recording */
function showRecordingState(recording) {
  find("record-label", HTMLElement).textContent = recording ? "Stop" : "Record";
  recordButton.classList.toggle("running", Boolean(recording));
  find("recording-progress", HTMLElement).hidden = !recording;
  if (recording) showProgress({ seconds: 0, level: 0 });
}

/** @param {import("./recorder.js").RecordingProgress} progress */
function showProgress({ seconds, level }) {
  find("elapsed", HTMLElement).textContent = formatTime(seconds, 1);
  find("level", HTMLMeterElement).value = Math.sqrt(level); // quiet speech is visible
}

// ---- files

/** @param {FileList | null | undefined} files */
function takeFiles(files) {
  const [file, ...others] = files ?? [];
  if (!file) return;
  if (others.length) return showMessage("Choose one recording at a time.", { isError: true });
  discardRecording();
  showNote("");
  state.onSound(file);
}

/**
 * Return whether files are dragged over the page that it takes.
 * @param {DragEvent} event
 */
const takesDragged = (event) => !side.hidden && Boolean(event.dataTransfer?.types.includes("Files"));

recordButton.onclick = toggleRecording;
fileInput.onchange = () => {
  takeFiles(fileInput.files);
  fileInput.value = ""; // choosing the same file again is a change
};
addEventListener("dragover", (event) => {
  if (!takesDragged(event)) return;
  event.preventDefault();
  side.classList.add("dragged");
});
addEventListener("dragleave", (event) => {
  if (!event.relatedTarget) side.classList.remove("dragged"); // it has left the window
});
addEventListener("drop", (event) => {
  side.classList.remove("dragged");
  if (!takesDragged(event)) return;
  event.preventDefault();
  takeFiles(event.dataTransfer?.files);
});
addEventListener("paste", (event) => {
  if (!side.hidden) takeFiles(event.clipboardData?.files);
});
