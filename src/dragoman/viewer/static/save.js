// Saving the viewer as a self-contained page, or a panel as PNG, SVG or CSV.

import { make } from "./dom.js";
import { toSvg, drawOnCanvas } from "./drawing-context.js";

/**
 * @typedef {import("./attention-data.js").AttentionRecord} AttentionRecord
 * @typedef {import("./drawing-context.js").Drawing} Drawing
 */

const SELF = typeof import.meta.url === "string" ? import.meta.url : "";

/**
 * Download a file.
 * @param {Blob} content
 * @param {string} name
 */
export function download(content, name) {
  const url = URL.createObjectURL(content);
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/**
 * @param {Drawing} drawing
 * @param {string} name
 * @param {string} background its colour
 */
export function saveSvg(drawing, name, background) {
  const svg = toSvg(withBackground(drawing, background));
  download(new Blob([new XMLSerializer().serializeToString(svg)], { type: "image/svg+xml" }), `${name}.svg`);
}

/**
 * @param {Drawing} drawing
 * @param {string} name
 * @param {string} background
 */
export function savePng(drawing, name, background) {
  const canvas = make("canvas");
  drawOnCanvas(withBackground(drawing, background), canvas, 2);
  canvas.toBlob((blob) => blob && download(blob, `${name}.png`));
}

/**
 * @param {Drawing} drawing
 * @param {string} background
 * @returns {Drawing}
 */
function withBackground({ width, height, draw }, background) {
  const margin = 16;
  return {
    width: width + 2 * margin,
    height: height + 2 * margin,
    draw(context) {
      context.rect(0, 0, width + 2 * margin, height + 2 * margin, { fill: background });
      draw(offsetContext(context, margin));
    },
  };
}

/**
 * Return a context that draws with an offset.
 * @param {import("./drawing-context.js").DrawingContext} context
 * @param {number} by
 * @returns {import("./drawing-context.js").DrawingContext}
 */
const offsetContext = (context, by) => ({
  rect: (x, y, width, height, style) => context.rect(x + by, y + by, width, height, style),
  curve: ([x, y], [toX, toY], style, upright) => context.curve([x + by, y + by], [toX + by, toY + by], style, upright),
  text: (x, y, text, style) => context.text(x + by, y + by, text, style),
});

/** Return whether the viewer's source is available, in the page itself or at its URL. */
export const canSavePage = () => Boolean(document.getElementById("dv-script")) || /^https?:/.test(SELF);

/**
 * Save a record as a page that needs no network.
 * @param {AttentionRecord} record
 * @param {string} name
 */
export async function savePage(record, name) {
  const [script, style] = await sources();
  download(new Blob([renderPage(record, script, style)], { type: "text/html" }), `${name}.html`);
}

/** @returns {Promise<[string, string]>} */
async function sources() {
  const [script, style] = ["dv-script", "dv-style"].map((id) => document.getElementById(id)?.textContent);
  if (script && style) return [script, style];
  const css = await (await fetch(new URL("viewer.css", SELF))).text();
  return [`${await bundleModules()}\n${START}`, css];
}

const START = 'show(document.getElementById("dv-root"), JSON.parse(document.getElementById("dv-record").textContent));';

/** Concatenate all modules, each after its imports; their top-level names are unique. */
async function bundleModules() {
  /** @type {Map<string, string>} */
  const done = new Map();
  /** @param {string} file */
  const add = async (file) => {
    if (done.has(file)) return;
    done.set(file, ""); // imports are not circular
    const text = await (await fetch(new URL(file, SELF))).text();
    for (const [, other = ""] of text.matchAll(/^import .* from "\.\/([\w-]+\.js)";$/gm)) await add(other);
    done.delete(file);
    done.set(file, text.replaceAll(/^import .*\n/gm, "").replaceAll(/^export /gm, ""));
  };
  await add("viewer.js");
  return [...done.values()].join("\n");
}

/**
 * Return the page. Its content security policy allows only this script and this style sheet, by a random nonce.
 * @param {AttentionRecord} record
 * @param {string} script
 * @param {string} style
 */
function renderPage(record, script, style) {
  const nonce = [...crypto.getRandomValues(new Uint8Array(16))]
    .map((byte) => byte.toString(16).padStart(2, "0"))
    .join("");
  const policy = `default-src 'none'; script-src 'nonce-${nonce}'; style-src 'nonce-${nonce}'; base-uri 'none'; form-action 'none'`;
  const data = JSON.stringify(record).replaceAll("<", "\\u003c").replaceAll(">", "\\u003e").replaceAll("&", "\\u0026");
  const open = (/** @type {string} */ tag, /** @type {string} */ more) => `<${tag} ${more}>`;
  return [
    "<!doctype html>",
    open("html", 'lang="en"'),
    open("meta", 'charset="utf-8"'),
    open("meta", `http-equiv="Content-Security-Policy" content="${policy}"`),
    open("meta", 'name="viewport" content="width=device-width, initial-scale=1"'),
    "<title>Attention</title>",
    `${open("style", `id="dv-style" nonce="${nonce}"`)}${style}<\/style>`,
    open("body", 'class="dv-page"'),
    `${open("main", 'id="dv-root"')}</main>`,
    `${open("script", 'type="application/json" id="dv-record"')}${data}<\/script>`,
    `${open("script", `type="module" id="dv-script" nonce="${nonce}"`)}${script}<\/script>`,
  ].join("\n");
}
