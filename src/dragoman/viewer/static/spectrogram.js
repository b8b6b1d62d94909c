// A recording as a spectrogram: the attention of the hovered token lies over it, and hovering over it hovers over its times.

import { at } from "./attention-data.js";
import { srgb } from "./colours.js";
import { make } from "./dom.js";
import { attentionShares } from "./sentences.js";

/**
 * @typedef {import("./colours.js").Theme} Theme
 * @typedef {import("./attention-data.js").AttentionData} AttentionData
 * @typedef {import("./store.js").State} State
 * @typedef {import("./store.js").Store} Store
 */

const SCALE = 2; // pixels of the canvas per frame and per band
const STRONGEST = 0.85; // opacity of the largest weight
const WEAKEST = 0.004; // smaller weights are not drawn

/**
 * Return the shades of the 256 levels, as pixels: loud sound stands out from the page.
 * @param {boolean} dark
 */
function levelShades(dark) {
  return Uint32Array.from({ length: 256 }, (_, i) => {
    const [red, green, blue] = srgb(dark ? 0.225 + (0.7 * i) / 255 : 0.985 - (0.7 * i) / 255, 0.004, 260);
    return (255 << 24) | (blue << 16) | (green << 8) | red;
  });
}

/**
 * Show the recording of a record.
 * @param {AttentionData} data
 * @param {Store} store
 * @param {() => Theme} theme
 */
export function spectrogramPanel(data, store, theme) {
  const canvas = make("canvas", { className: "dv-spectrogram", tabIndex: 0 });
  const { frames, bands, seconds } = data.record.signal ?? { frames: "", bands: 1, seconds: 0 };
  const bytes = data.unpack("signal", frames);
  const length = bytes.length / bands;
  const positions = data.record.source.pieces.length;
  const picture = document.createElement("canvas");
  canvas.width = length * SCALE;
  canvas.height = bands * SCALE;
  canvas.setAttribute("role", "slider");
  canvas.setAttribute("aria-label", "Time in the recording");
  canvas.setAttribute("aria-valuemin", "0");
  canvas.setAttribute("aria-valuemax", String(positions - 1));
  const marks = [0, 0.25, 0.5, 0.75, 1].map((share) => make("span", {}, `${(share * seconds).toFixed(1)} s`));
  const axis = make("div", { className: "dv-row dv-between dv-note" }, ...marks);
  axis.setAttribute("aria-hidden", "true");
  const element = make("div", { className: "dv-recording" }, canvas, axis);
  let focused = 0; // the position that the keys have reached

  const pointAt = (/** @type {number} */ position) =>
    ({ side: /** @type {const} */ ("source"), first: position, end: position + 1 });

  /** @param {PointerEvent | MouseEvent} event */
  function positionOf(event) {
    const box = canvas.getBoundingClientRect();
    return Math.min(positions - 1, Math.max(0, Math.floor(((event.clientX - box.left) / box.width) * positions)));
  }

  canvas.onpointermove = (event) => store.point(pointAt(positionOf(event)));
  canvas.onpointerleave = canvas.onblur = () => store.point(null);
  canvas.onclick = (event) => store.lock(pointAt(positionOf(event)));
  canvas.onfocus = () => store.point(pointAt(focused));
  canvas.onkeydown = (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -positions, End: positions }[event.key];
    if (event.key === "Enter" || event.key === " ") store.lock(pointAt(focused));
    else if (step === undefined) return;
    else store.point(pointAt((focused = Math.min(positions - 1, Math.max(0, focused + step)))));
    event.preventDefault();
  };

  /** Draw the frames, one pixel each, with low bands below. */
  function paint() {
    picture.width = length;
    picture.height = bands;
    const context = picture.getContext("2d");
    if (!context || !length) return;
    const image = context.createImageData(length, bands);
    const pixels = new Uint32Array(image.data.buffer);
    const shades = levelShades(theme().dark);
    for (let frame = 0; frame < length; frame++) {
      for (let band = 0; band < bands; band++) {
        pixels[(bands - 1 - band) * length + frame] = at(shades, bytes[frame * bands + band] ?? 0);
      }
    }
    context.putImageData(image, 0, 0);
  }

  function overlay() {
    const context = canvas.getContext("2d");
    if (!context || !length) return;
    const { state } = store;
    const shares = attentionShares(data, state).source;
    const most = Math.max(WEAKEST, ...shares);
    const width = canvas.width / positions;
    context.imageSmoothingEnabled = false;
    context.drawImage(picture, 0, 0, canvas.width, canvas.height);
    context.fillStyle = theme().accent;
    shares.forEach((share, i) => {
      if (share < WEAKEST) return;
      context.globalAlpha = (STRONGEST * share) / most;
      context.fillRect(i * width, 0, width, canvas.height);
    });
    context.globalAlpha = 1;
    const chosen = state.point?.side === "source" ? state.point : null;
    if (chosen) {
      context.strokeStyle = theme().ink;
      context.lineWidth = SCALE;
      context.strokeRect(chosen.first * width, 0, (chosen.end - chosen.first) * width, canvas.height);
    }
    canvas.setAttribute("aria-valuenow", String(chosen?.first ?? focused));
    canvas.setAttribute("aria-valuetext", `${data.record.source.pieces[chosen?.first ?? focused]?.label ?? 0} s`);
  }

  paint();
  overlay();
  return {
    element,
    draw(/** @type {Set<keyof State>} */ changes) {
      if (changes.has("theme")) paint();
      const keys = /** @type {(keyof State)[]} */ (["theme", "units", "point", "partner", "node", "kind", "heads"]);
      if (keys.some((key) => changes.has(key))) overlay();
    },
  };
}
