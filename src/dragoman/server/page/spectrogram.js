// Draws a stretch of a recording: a time axis, the spectrogram with the attention over it, and the words at their times.

import { srgb } from "../../viewer/static/colours.js";
import { CanvasContext, textWidth } from "../../viewer/static/drawing-context.js";

/**
 * @typedef {import("./transcript.js").HeardText} HeardText
 * @typedef {import("./transcript.js").HeardWord} HeardWord
 * @typedef {import("./transcript.js").HeardSegment} HeardSegment
 * @typedef {import("../../viewer/static/colours.js").Theme} Theme
 * @typedef {{ left: number, width: number, scale: number }} Stretch what is visible: pixels from the beginning, pixels,
 *   and pixels per second
 * @typedef {{ text: HeardText, word: HeardWord | null, theme: Theme, heat: string }} Scene `heat`: the colour of attention
 */

const AXIS = 22; // pixels, from the top
const BANDS = 160;
const WORDS = 30;
const LETTER = 13;
const TICK_ROOM = 64; // pixels between two labels of the axis, at least
const TICK_SECONDS = [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600];
const STRENGTH = 0.8; // opacity of the largest weight

/**
 * Return the height of the bands of a spectrogram: 0 if there is none.
 * @param {HeardText} text
 */
const bandsHeight = ({ segments }) => (segments.some(({ signal }) => signal) ? BANDS : 0);

/** @param {HeardText} text */
export const drawingHeight = (text) => AXIS + bandsHeight(text) + WORDS;

const buffer = document.createElement("canvas");

/**
 * Draw what is visible of a recording.
 * @param {HTMLCanvasElement} canvas
 * @param {Stretch} stretch
 * @param {Scene} scene
 */
export function drawStretch(canvas, stretch, scene) {
  const context = canvas.getContext("2d");
  if (!context) return;
  canvas.width = Math.ceil(stretch.width * devicePixelRatio);
  canvas.height = Math.ceil(drawingHeight(scene.text) * devicePixelRatio);
  context.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, -stretch.left * devicePixelRatio, 0);
  for (const segment of scene.text.segments) {
    if (!isVisible(segment, stretch)) continue;
    drawSignal(context, segment, stretch, scene.theme);
    if (!scene.word) drawAlignment(context, segment, stretch, scene.heat);
  }
  if (scene.word?.segment.signal) drawWordAttention(context, scene.word, stretch, scene);
  drawAxis(new CanvasContext(context), stretch, scene);
  drawWords(new CanvasContext(context), stretch, scene);
}

/**
 * @param {{ startSeconds: number, endSeconds: number }} span
 * @param {Stretch} stretch
 */
const isVisible = ({ startSeconds, endSeconds }, { left, width, scale }) =>
  endSeconds * scale >= left && startSeconds * scale <= left + width;

/**
 * Draw the visible frames of a segment; low frequencies are at the bottom.
 * @param {CanvasRenderingContext2D} context
 * @param {HeardSegment} segment
 * @param {Stretch} stretch
 * @param {Theme} theme
 */
function drawSignal(context, { startSeconds, signal }, { left, width, scale }, theme) {
  if (!signal) return;
  const { frames, secondsPerFrame } = signal;
  const step = secondsPerFrame * scale; // pixels per frame
  const first = Math.max(0, Math.floor((left - startSeconds * scale) / step));
  const last = Math.min(frames.rows, Math.ceil((left + width - startSeconds * scale) / step));
  if (last <= first) return;
  const shades = loudnessTable(signal, theme.dark);
  const image = new ImageData(last - first, frames.columns);
  const pixels = new Uint32Array(image.data.buffer);
  for (let band = 0; band < frames.columns; band++) {
    const row = (frames.columns - 1 - band) * image.width;
    for (let frame = first; frame < last; frame++) {
      pixels[row + frame - first] = shades[frames.values[frame * frames.columns + band] ?? 0] ?? 0;
    }
  }
  drawScaled(context, image, startSeconds * scale + first * step, AXIS, image.width * step, BANDS);
}

/**
 * Return the shades of grey of the 256 byte values, as pixels: without hue, so that the attention is the only colour.
 * @param {{ quiet: number, loud: number }} range
 * @param {boolean} dark
 */
function loudnessTable({ quiet, loud }, dark) {
  return Uint32Array.from({ length: 256 }, (_, i) => {
    const loudness = Math.min(1, Math.max(0, (i - quiet) / Math.max(1, loud - quiet)));
    const [red, green, blue] = srgb(dark ? 0.24 + 0.7 * loudness : 0.98 - 0.72 * loudness, 0.012, 260);
    return (255 << 24) | (blue << 16) | (green << 8) | red;
  });
}

/**
 * Draw the attention of all tokens of a segment, from the first at the top to the last at the bottom.
 * @param {CanvasRenderingContext2D} context
 * @param {HeardSegment} segment
 * @param {Stretch} stretch
 * @param {string} heat
 */
function drawAlignment(context, { startSeconds, attention }, { scale }, heat) {
  if (!attention?.weights.values.length) return;
  const { values, rows, columns } = attention.weights;
  const width = columns * attention.secondsPerPosition * scale;
  drawScaled(context, heatImage(values, rows, columns, heat), startSeconds * scale, AXIS, width, BANDS);
}

/**
 * Draw where a word was heard: its attention, and its time as a frame.
 * @param {CanvasRenderingContext2D} context
 * @param {HeardWord} word
 * @param {Stretch} stretch
 * @param {Scene} scene
 */
function drawWordAttention(context, { segment, weights, startSeconds, endSeconds }, { scale }, { heat, theme }) {
  if (weights?.length && segment.attention) {
    const width = weights.length * segment.attention.secondsPerPosition * scale;
    drawScaled(context, heatImage(weights, 1, weights.length, heat), segment.startSeconds * scale, AXIS, width, BANDS);
  }
  const [left, right] = [startSeconds * scale, endSeconds * scale];
  const style = { stroke: theme.ink, width: 1.5, radius: 3 };
  new CanvasContext(context).rect(left, AXIS + 1, Math.max(2, right - left), BANDS - 2, style);
}

/**
 * Return weights as opacities of one colour.
 * @param {Uint8Array} weights
 * @param {number} rows
 * @param {number} columns
 * @param {string} heat
 */
function heatImage(weights, rows, columns, heat) {
  const image = new ImageData(columns, rows);
  const [red = 0, green = 0, blue = 0] = (heat.match(/[\d.]+/g) ?? []).map(Number);
  const colour = (blue << 16) | (green << 8) | red;
  new Uint32Array(image.data.buffer).set(Uint32Array.from(weights, (weight) => ((STRENGTH * weight) << 24) | colour));
  return image;
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {ImageData} image
 * @param {number} x
 * @param {number} y
 * @param {number} width
 * @param {number} height
 */
function drawScaled(context, image, x, y, width, height) {
  buffer.width = image.width;
  buffer.height = image.height;
  buffer.getContext("2d")?.putImageData(image, 0, 0);
  context.drawImage(buffer, x, y, width, height);
}

/**
 * @param {CanvasContext} context
 * @param {Stretch} stretch
 * @param {Scene} scene
 */
function drawAxis(context, { left, width, scale }, { text, theme }) {
  const step = TICK_SECONDS.find((seconds) => seconds * scale >= TICK_ROOM) ?? 600;
  const last = Math.min(text.seconds, (left + width) / scale);
  for (let number = Math.floor(left / scale / step); number * step <= last; number++) {
    const x = number * step * scale;
    context.rect(x, AXIS - 5, 1, 5, { fill: theme.faint });
    const label = formatTime(number * step, step < 1 ? 1 : 0);
    if (x + textWidth(label, 12) > text.seconds * scale) return; // no room at the end
    context.text(x + 4, AXIS / 2 - 1, label, { size: 12, fill: theme.faint });
  }
}

/**
 * Return seconds as a time: "3.5 s", or "1:05" after the first minute.
 * @param {number} seconds
 * @param {number} digits after the point
 */
export function formatTime(seconds, digits) {
  if (seconds < 60) return `${seconds.toFixed(digits)} s`;
  const rest = (seconds % 60).toFixed(digits);
  return `${Math.floor(seconds / 60)}:${Number(rest) < 10 ? "0" : ""}${rest}`;
}

/**
 * Draw the words below their times; those for which there is no room only as a bar.
 * @param {CanvasContext} context
 * @param {Stretch} stretch
 * @param {Scene} scene
 */
function drawWords(context, stretch, { text, word: chosen, theme, heat }) {
  const y = AXIS + bandsHeight(text) + 4;
  text.words.forEach((word, i) => {
    if (!isVisible(word, stretch)) return;
    const [left, right] = [word.startSeconds * stretch.scale, word.endSeconds * stretch.scale];
    const room = (text.words[i + 1]?.startSeconds ?? text.seconds) * stretch.scale - left;
    const isChosen = word === chosen;
    context.rect(left, y, Math.max(2, right - left), 3, { fill: isChosen ? heat : theme.accent, radius: 1.5 });
    if (textWidth(word.text, LETTER, isChosen) > room) return;
    context.text(left, y + 15, word.text, { size: LETTER, bold: isChosen, fill: theme.ink });
  });
}
