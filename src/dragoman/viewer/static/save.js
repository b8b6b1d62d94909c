// Saving: one page that needs nothing else, or a panel as a picture or as numbers.

import { make } from "./dom.js";
import { asSvg, onCanvas } from "./pen.js";

/**
 * @typedef {import("./look.js").Look} Look
 * @typedef {import("./pen.js").Drawing} Drawing
 */

const SELF = typeof import.meta.url === "string" ? import.meta.url : "";

/**
 * Hand a file to the person.
 * @param {Blob} content
 * @param {string} name
 */
export function download(content, name) {
  const address = URL.createObjectURL(content);
  make("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

/**
 * @param {Drawing} drawing
 * @param {string} name
 * @param {string} paper colour of the background
 */
export function saveSvg(drawing, name, paper) {
  const svg = asSvg(withPaper(drawing, paper));
  download(new Blob([new XMLSerializer().serializeToString(svg)], { type: "image/svg+xml" }), `${name}.svg`);
}

/**
 * @param {Drawing} drawing
 * @param {string} name
 * @param {string} paper
 */
export function savePng(drawing, name, paper) {
  const canvas = make("canvas");
  onCanvas(withPaper(drawing, paper), canvas, 2);
  canvas.toBlob((blob) => blob && download(blob, `${name}.png`));
}

/**
 * @param {Drawing} drawing
 * @param {string} paper
 * @returns {Drawing}
 */
function withPaper({ width, height, draw }, paper) {
  const margin = 16;
  return {
    width: width + 2 * margin,
    height: height + 2 * margin,
    draw(pen) {
      pen.rect(0, 0, width + 2 * margin, height + 2 * margin, { fill: paper });
      draw(moved(pen, margin));
    },
  };
}

/**
 * Return a pen that draws so far to the right and down.
 * @param {import("./pen.js").Pen} pen
 * @param {number} by
 * @returns {import("./pen.js").Pen}
 */
const moved = (pen, by) => ({
  rect: (x, y, width, height, ink) => pen.rect(x + by, y + by, width, height, ink),
  curve: ([x, y], [toX, toY], ink, upright) => pen.curve([x + by, y + by], [toX + by, toY + by], ink, upright),
  text: (x, y, text, writing) => pen.text(x + by, y + by, text, writing),
});

/** Say whether the viewer can find its own source here: in the page itself, or where it was loaded from. */
export const canSavePage = () => Boolean(document.getElementById("dv-script")) || /^https?:/.test(SELF);

/**
 * Save a look as one page that opens from disk, without a network.
 * @param {Look} look
 * @param {string} name
 */
export async function savePage(look, name) {
  const [script, style] = await sources();
  download(new Blob([pageOf(look, script, style)], { type: "text/html" }), `${name}.html`);
}

/** @returns {Promise<[string, string]>} */
async function sources() {
  const [script, style] = ["dv-script", "dv-style"].map((id) => document.getElementById(id)?.textContent);
  if (script && style) return [script, style];
  const css = await (await fetch(new URL("viewer.css", SELF))).text();
  return [`${await bundled()}\n${START}`, css];
}

const START = 'show(document.getElementById("dv-root"), JSON.parse(document.getElementById("dv-look").textContent));';

/** Put all modules into one, each after those it imports; no two of them use the same name for different things. */
async function bundled() {
  /** @type {Map<string, string>} */
  const done = new Map();
  /** @param {string} file */
  const take = async (file) => {
    if (done.has(file)) return;
    done.set(file, ""); // modules do not import each other in circles
    const text = await (await fetch(new URL(file, SELF))).text();
    for (const [, other = ""] of text.matchAll(/^import .* from "\.\/([\w-]+\.js)";$/gm)) await take(other);
    done.delete(file);
    done.set(file, text.replaceAll(/^import .*\n/gm, "").replaceAll(/^export /gm, ""));
  };
  await take("viewer.js");
  return [...done.values()].join("\n");
}

/**
 * Write the page. Only this script and this style sheet may run in it; a number that nobody could guess says which.
 * @param {Look} look
 * @param {string} script
 * @param {string} style
 */
function pageOf(look, script, style) {
  const nonce = [...crypto.getRandomValues(new Uint8Array(16))]
    .map((byte) => byte.toString(16).padStart(2, "0"))
    .join("");
  const policy = `default-src 'none'; script-src 'nonce-${nonce}'; style-src 'nonce-${nonce}'; base-uri 'none'; form-action 'none'`;
  const data = JSON.stringify(look).replaceAll("<", "\\u003c").replaceAll(">", "\\u003e").replaceAll("&", "\\u0026");
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
    `${open("script", 'type="application/json" id="dv-look"')}${data}<\/script>`,
    `${open("script", `type="module" id="dv-script" nonce="${nonce}"`)}${script}<\/script>`,
  ].join("\n");
}
