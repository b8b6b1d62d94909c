// Drawings of the output, where the server sends some: parse trees.

import { find, make } from "./elements.js";

const panel = find("pictures", HTMLDivElement);

/**
 * Show drawings, each in a frame that scrolls.
 * @param {string[]} drawings as SVG; shown as images, so that nothing in them can run
 */
export function showPictures(drawings) {
  panel.replaceChildren(...drawings.map(framed));
  panel.hidden = !drawings.length;
}

/**
 * @param {string} drawing
 * @param {number} place
 * @param {string[]} all
 */
function framed(drawing, place, all) {
  const address = `data:image/svg+xml,${encodeURIComponent(drawing)}`;
  const name = all.length > 1 ? `Drawing ${place + 1}` : "Drawing";
  const image = make("img", { src: address, alt: `${name} of the output` });
  const frame = make("div", { className: "picture", tabIndex: 0, role: "region", ariaLabel: `${name}, may be scrolled` }, image);
  const save = make("a", { className: "plain", href: address, download: `${name}.svg` }, `Save ${name.toLowerCase()}`);
  return make("div", {}, frame, save);
}
