// Records from the microphone: its samples as they are, because what a browser does to speech for calls hurts recognition.

import { ApiError } from "./api.js";
import { BYTES_PER_SAMPLE, encodeWav, HEADER_BYTES, toPcm } from "./wav.js";

/**
 * @typedef {{ seconds: number, level: number }} RecordingProgress level: of the last chunk, from 0 to 1
 * @typedef {{ stop: () => void, discard: () => void }} Recording
 * @typedef {{ bytes: number, seconds: number }} RecordingLimits
 * @typedef {{ onProgress: (progress: RecordingProgress) => void, onEnd: (file: File, end: RecordingEnd) => void }} Listeners
 * @typedef {{ isFull: boolean, isSilent: boolean }} RecordingEnd whether the limit was reached; whether every sample is 0
 */

const CONSTRAINTS = { audio: { echoCancellation: false, noiseSuppression: false, autoGainControl: false } };
const FILE_NAME = "recording.wav";
const ADVICE = "Choose a file instead";

/** What to do when the microphone cannot be used, by the name of the browser's error. */
const MICROPHONE_ERRORS = new Map([
  [
    "NotAllowedError",
    `This page is not allowed to use the microphone. Allow it in the browser's settings of this site. ${ADVICE}, or try again.`,
  ],
  ["NotFoundError", `No microphone was found. ${ADVICE}, or connect one and try again.`],
  ["NotReadableError", `The microphone cannot be used; another program may be using it. ${ADVICE}, or try again.`],
]);

/**
 * Record from the microphone until it is stopped, until a limit is reached or until the microphone is disconnected.
 * @param {RecordingLimits} limits
 * @param {Listeners} listeners
 * @param {AbortSignal} signal
 * @returns {Promise<Recording>}
 */
export async function startRecording(limits, listeners, signal) {
  const stream = await openMicrophone();
  const context = new AudioContext();
  const close = () => {
    for (const track of stream.getTracks()) track.stop();
    if (context.state !== "closed") context.close();
  };
  try {
    await context.audioWorklet.addModule(new URL("recorder-worklet.js", import.meta.url));
    signal.throwIfAborted();
    return record(stream, context, limits, listeners, close);
  } catch (error) {
    close();
    throw error;
  }
}

/** @returns {Promise<MediaStream>} */
async function openMicrophone() {
  if (!isSecureContext)
    throw new ApiError(`Browsers only record on pages that are served over https or from this machine. ${ADVICE}.`);
  if (!navigator.mediaDevices?.getUserMedia) throw new ApiError(`This browser cannot record. ${ADVICE}.`);
  try {
    return await navigator.mediaDevices.getUserMedia(CONSTRAINTS);
  } catch (error) {
    const name = error instanceof DOMException ? error.name : "";
    throw new ApiError(MICROPHONE_ERRORS.get(name) ?? `The microphone cannot be used: ${error}. ${ADVICE}.`);
  }
}

/**
 * @param {MediaStream} stream
 * @param {AudioContext} context
 * @param {RecordingLimits} limits
 * @param {Listeners} listeners
 * @param {() => void} close
 * @returns {Recording}
 */
function record(stream, context, limits, { onProgress, onEnd }, close) {
  const rate = context.sampleRate;
  const room = Math.floor(Math.min(rate * limits.seconds, (limits.bytes - HEADER_BYTES) / BYTES_PER_SAMPLE));
  const node = new AudioWorkletNode(context, "recorder");
  const chunks = /** @type {Int16Array[]} */ ([]);
  let [length, loudest] = [0, 0];
  const stop = () => node.port.postMessage("stop");
  const finish = () => {
    close();
    onEnd(encodeWav(chunks, rate, FILE_NAME), { isFull: length === room, isSilent: !loudest });
  };
  node.port.onmessage = ({ data }) => {
    if (data === null) return finish();
    const chunk = toPcm(data).subarray(0, room - length);
    const level = chunk.reduce((most, sample) => Math.max(most, Math.abs(sample)), 0) / 32767;
    chunks.push(chunk);
    length += chunk.length;
    loudest = Math.max(loudest, level);
    onProgress({ seconds: length / rate, level });
    if (length === room) stop();
  };
  const discard = () => ((node.port.onmessage = null), close());
  for (const track of stream.getTracks()) track.onended = stop; // the microphone was disconnected
  context.createMediaStreamSource(stream).connect(node).connect(context.destination); // its output is silence
  return { stop, discard };
}
