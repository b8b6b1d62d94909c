// The colour scale of weights. Its lightness is monotonic, so that it can be read without distinguishing hues.

/**
 * @typedef {{ dark: boolean, ink: string, faint: string, line: string, accent: string, paper: string, card: string,
 *   colour: Uint32Array, grey: Uint32Array }} Theme CSS colours; the colour scale as pixels by byte
 */

/**
 * Convert an OKLCH colour to sRGB bytes.
 * @param {number} lightness
 * @param {number} chroma
 * @param {number} hue in degrees
 * @returns {[number, number, number]}
 */
export function srgb(lightness, chroma, hue) {
  const angle = (hue * Math.PI) / 180;
  const [a, b] = [chroma * Math.cos(angle), chroma * Math.sin(angle)];
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  /** @type {[number, number, number]} */
  const linear = [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ];
  const [red, green, blue] = linear.map((value) => {
    const encoded = value <= 0.0031308 ? 12.92 * value : 1.055 * value ** (1 / 2.4) - 0.055;
    return Math.round(255 * Math.min(1, Math.max(0, encoded)));
  });
  return [red ?? 0, green ?? 0, blue ?? 0];
}

/**
 * Return the colour of a weight from 0 to 1. The scale is that of its square root, which keeps small weights visible.
 * @param {number} weight
 * @param {boolean} dark
 * @param {boolean} grey
 * @returns {[number, number, number]}
 */
export function weightColour(weight, dark, grey = false) {
  const t = Math.sqrt(Math.min(1, Math.max(0, weight)));
  if (grey) return dark ? srgb(0.225 + 0.4 * t, 0.004, 260) : srgb(0.985 - 0.3 * t, 0.004, 260);
  const bulge = 4 * t * (1 - t); // chroma is highest in the middle
  // Dark: dark blue, green, pale yellow. Light: white, blue, indigo.
  return dark
    ? srgb(0.225 + 0.745 * t, 0.012 + 0.115 * bulge, 268 - 172 * t ** 1.5)
    : srgb(0.985 - 0.705 * t, 0.006 + 0.1 * bulge + 0.05 * t * t, 232 + 44 * t);
}

/**
 * Return the colours of the 256 byte values, as pixels.
 * @param {boolean} dark
 * @param {boolean} grey
 */
export function colourTable(dark, grey) {
  return Uint32Array.from({ length: 256 }, (_, i) => {
    const [red, green, blue] = weightColour(i / 255, dark, grey);
    return (255 << 24) | (blue << 16) | (green << 8) | red;
  });
}

/**
 * Return the colour of a weight in CSS syntax.
 * @param {number} weight
 * @param {Theme} theme
 * @param {boolean} [grey]
 */
export const cssColour = (weight, theme, grey = false) => `rgb(${weightColour(weight, theme.dark, grey).join(" ")})`;

/**
 * Read the colours of an element's variables.
 * @param {HTMLElement} root
 * @param {string} [prefix] of the names of the variables
 * @returns {Theme}
 */
export function readTheme(root, prefix = "--dv-") {
  const probe = root.appendChild(document.createElement("span"));
  const read = (/** @type {string} */ name) => {
    probe.style.color = `var(${prefix}${name})`;
    return getComputedStyle(probe).color;
  };
  const [ink, faint, line, accent, paper, card] = /** @type {[string, string, string, string, string, string]} */ (
    ["ink", "faint", "line", "accent", "paper", "card"].map(read)
  );
  probe.remove();
  const [red = 0, green = 0, blue = 0] = (ink.match(/[\d.]+/g) ?? []).map(Number);
  const dark = 0.3 * red + 0.6 * green + 0.1 * blue > 128; // light text means a dark page
  return { dark, ink, faint, line, accent, paper, card, colour: colourTable(dark, false), grey: colourTable(dark, true) };
}
