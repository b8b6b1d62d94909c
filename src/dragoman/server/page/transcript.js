// A transcript as the page shows it: its words, with where in the text and when in the recording each of them is.

import { decodeBytes } from "../../viewer/static/attention-data.js";

/**
 * @typedef {{ values: Uint8Array, rows: number, columns: number }} ByteMatrix
 * @typedef {{ frames: ByteMatrix, secondsPerFrame: number, quiet: number, loud: number } | null} Signal frames × bands;
 *   most of its bytes lie between `quiet` and `loud`
 * @typedef {{ weights: ByteMatrix, secondsPerPosition: number } | null} Attention tokens × positions
 * @typedef {{ startSeconds: number, endSeconds: number, signal: Signal, attention: Attention }} HeardSegment
 * @typedef {{ text: string, start: number, end: number, isWord: boolean, startSeconds: number, endSeconds: number,
 *   segment: HeardSegment, weights: Uint8Array | null }} HeardWord `start` and `end` are those in the text; `weights` is
 *   its attention to each position of its segment
 * @typedef {Partial<import("./api.js").TimedWord> & { text: string, start: number, end: number }} LocatedWord offsets in
 *   the text of its segment
 * @typedef {{ text: string, seconds: number, segments: HeardSegment[], words: HeardWord[] }} HeardText
 */

const HALF = 128; // of the largest weight
const QUIET_SHARE = 0.4; // of a spectrogram that is as good as silent
const LOUD_SHARE = 0.002; // of a spectrogram that is as loud as can be

/**
 * Read a transcript as the server sends it.
 * @param {import("./api.js").Transcript} transcript
 * @returns {HeardText}
 */
export function readTranscript({ text, duration_seconds: seconds, segments: received }) {
  let position = 0;
  const parts = received.map((each) => {
    const segment = readSegment(each);
    const words = locateWords(each).map((word) => {
      const start = text.indexOf(word.text, position);
      position = start + word.text.length;
      const weights = wordWeights(each, segment.attention, word);
      return { text: word.text, start, end: position, isWord: true, segment, weights, ...wordTimes(word, segment, weights) };
    });
    return { segment, words };
  });
  return { text, seconds, segments: parts.map(({ segment }) => segment), words: parts.flatMap(({ words }) => words) };
}

/**
 * @param {import("./api.js").SignalDetails} signal
 * @returns {Signal}
 */
function readSignal({ frames, length, bands, seconds_per_frame: secondsPerFrame }) {
  const matrix = readMatrix(frames, length, bands);
  return { frames: matrix, secondsPerFrame, ...loudnessRange(matrix.values) };
}

/**
 * Return the bytes between which most of a signal lies, without the noise below.
 * @param {Uint8Array} values
 */
function loudnessRange(values) {
  const counts = new Array(256).fill(0);
  for (const value of values) counts[value]++;
  const quantile = (/** @type {number} */ share) => {
    let sum = 0;
    return counts.findIndex((count) => (sum += count) >= share * values.length);
  };
  return { quiet: quantile(QUIET_SHARE), loud: quantile(1 - LOUD_SHARE) };
}

/**
 * @param {import("./api.js").TranscriptSegment} segment
 * @returns {HeardSegment}
 */
function readSegment({ start_seconds: startSeconds, end_seconds: endSeconds, signal, attention }) {
  return {
    startSeconds,
    endSeconds,
    signal: signal ? readSignal(signal) : null,
    attention: attention
      ? {
          weights: readMatrix(attention.weights, attention.tokens.length, attention.positions),
          secondsPerPosition: attention.seconds_per_position,
        }
      : null,
  };
}

/**
 * @param {string} bytes
 * @param {number} rows
 * @param {number} columns
 * @returns {ByteMatrix}
 */
const readMatrix = (bytes, rows, columns) => ({ values: decodeBytes(bytes), rows, columns });

/**
 * Return the words of a segment with their offsets in its text, and their times if the model has told them.
 * @param {import("./api.js").TranscriptSegment} segment
 * @returns {LocatedWord[]}
 */
function locateWords({ text, words }) {
  /** @type {(Partial<import("./api.js").TimedWord> & { text: string })[]} */
  const timed = words.length
    ? words
    : text
        .split(/\s+/)
        .filter(Boolean)
        .map((word) => ({ text: word }));
  let end = 0;
  return timed.map((word) => {
    const start = text.indexOf(word.text, end);
    end = start + word.text.length;
    return { ...word, start, end };
  });
}

/**
 * Return the attention of a word: at each position the largest of those of its tokens.
 * @param {import("./api.js").TranscriptSegment} segment
 * @param {Attention} attention
 * @param {LocatedWord} word
 */
function wordWeights({ text, attention: received }, attention, { start, end }) {
  if (!received || !attention) return null;
  const { values, columns } = attention.weights;
  const before = [...text.slice(0, start)].length; // the server counts characters, not units of UTF-16
  const after = before + [...text.slice(start, end)].length;
  const weights = new Uint8Array(columns);
  received.tokens.forEach((token, row) => {
    if (token.start >= after || token.end <= before) return;
    values.subarray(row * columns, (row + 1) * columns).forEach((value, i) => (weights[i] = Math.max(weights[i] ?? 0, value)));
  });
  return weights;
}

/**
 * Return when a word was heard; without times of words, where at least half of its largest attention is.
 * @param {LocatedWord} word
 * @param {HeardSegment} segment
 * @param {Uint8Array | null} weights
 */
function wordTimes({ start_seconds, end_seconds }, segment, weights) {
  if (start_seconds !== undefined && end_seconds !== undefined) return { startSeconds: start_seconds, endSeconds: end_seconds };
  const step = segment.attention?.secondsPerPosition ?? 0;
  const first = weights?.findIndex((weight) => weight >= HALF) ?? -1;
  const last = weights?.findLastIndex((weight) => weight >= HALF) ?? -1;
  if (first < 0) return { startSeconds: segment.startSeconds, endSeconds: segment.endSeconds };
  return { startSeconds: segment.startSeconds + step * first, endSeconds: segment.startSeconds + step * (last + 1) };
}
