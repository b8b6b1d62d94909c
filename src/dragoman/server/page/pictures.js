// Drawings of the output that the server sends: parse trees.

import { find, make } from "../../viewer/static/dom.js";

const panel = find("pictures", HTMLDivElement);

/**
 * Show drawings, each in a scrollable frame.
 * @param {string[]} drawings SVG; shown as images, in which scripts do not run
 */
export function showPictures(drawings) {
  panel.replaceChildren(...drawings.map(createFrame));
  panel.hidden = !drawings.length;
}

/**
 * @param {string} drawing
 * @param {number} index
 * @param {string[]} all
 */
function createFrame(drawing, index, all) {
  const url = `data:image/svg+xml,${encodeURIComponent(drawing)}`;
  const name = all.length > 1 ? `Drawing ${index + 1}` : "Drawing";
  const image = make("img", { src: url, alt: `${name} of the output` });
  const frame = make("div", { className: "picture", tabIndex: 0, role: "region", ariaLabel: `${name}, scrollable` }, image);
  const save = make("a", { className: "plain", href: url, download: `${name}.svg` }, `Save ${name.toLowerCase()}`);
  return make("div", {}, frame, save);
}
