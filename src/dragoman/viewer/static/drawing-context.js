// Drawing contexts for canvas and SVG with the same interface, so that a panel can be saved as PNG or SVG.

/**
 * @typedef {{ fill?: string, stroke?: string, width?: number, opacity?: number, radius?: number, dashed?: boolean }} ShapeStyle
 * @typedef {{ fill?: string, size?: number, anchor?: "start" | "middle" | "end", turn?: number, bold?: boolean,
 *   opacity?: number, halo?: string }} TextStyle
 * @typedef {{ rect: (x: number, y: number, width: number, height: number, style: ShapeStyle) => Element | null,
 *   curve: (from: [number, number], to: [number, number], style: ShapeStyle, upright?: boolean) => Element | null,
 *   text: (x: number, y: number, text: string, style?: TextStyle) => Element | null }} DrawingContext
 */

export const FONT = "system-ui, sans-serif";

/** Draws on a canvas. */
export class CanvasContext {
  /** @param {CanvasRenderingContext2D} context */
  constructor(context) {
    this.context = context;
  }

  /** @type {DrawingContext["rect"]} */
  rect(x, y, width, height, { fill, stroke, width: line = 1, opacity = 1, radius = 0 }) {
    const { context } = this;
    context.globalAlpha = opacity;
    context.beginPath();
    context.roundRect(x, y, width, height, radius);
    if (fill) Object.assign(context, { fillStyle: fill }).fill();
    if (stroke) Object.assign(context, { strokeStyle: stroke, lineWidth: line }).stroke();
    context.globalAlpha = 1;
    return null;
  }

  /** @type {DrawingContext["curve"]} */
  curve(from, to, { stroke = "black", width = 1, opacity = 1, dashed = false }, upright = false) {
    const { context } = this;
    const [one, two] = controlPoints(from, to, upright);
    Object.assign(context, { globalAlpha: opacity, strokeStyle: stroke, lineWidth: width, lineCap: "round" });
    context.setLineDash(dashed ? [3, 4] : []);
    context.beginPath();
    context.moveTo(...from);
    context.bezierCurveTo(...one, ...two, ...to);
    context.stroke();
    context.setLineDash([]);
    context.globalAlpha = 1;
    return null;
  }

  /** @type {DrawingContext["text"]} */
  text(x, y, text, { fill = "black", size = 13, anchor = "start", turn = 0, bold = false, opacity = 1, halo } = {}) {
    const { context } = this;
    context.save();
    context.translate(x, y);
    context.rotate((turn * Math.PI) / 180);
    context.font = `${bold ? 600 : 400} ${size}px ${FONT}`;
    context.textAlign = anchor === "middle" ? "center" : anchor === "start" ? "left" : "right";
    context.textBaseline = "middle";
    context.globalAlpha = opacity;
    if (halo) {
      Object.assign(context, { strokeStyle: halo, lineWidth: 4, lineJoin: "round" }).strokeText(text, 0, 0);
    }
    Object.assign(context, { fillStyle: fill }).fillText(text, 0, 0);
    context.restore();
    return null;
  }
}

/** Draws into an SVG element and returns the new elements. */
export class SvgContext {
  /** @param {SVGElement} root */
  constructor(root) {
    this.root = root;
  }

  /**
   * @param {string} tag
   * @param {Record<string, string | number | undefined>} attributes
   */
  put(tag, attributes) {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (value !== undefined) element.setAttribute(name, String(value));
    }
    return this.root.appendChild(element);
  }

  /** @type {DrawingContext["rect"]} */
  rect(x, y, width, height, { fill = "none", stroke, width: line, opacity, radius }) {
    return this.put("rect", { x, y, width, height, fill, stroke, "stroke-width": line, opacity, rx: radius });
  }

  /** @type {DrawingContext["curve"]} */
  curve(from, to, { stroke = "black", width = 1, opacity, dashed = false }, upright = false) {
    const [one, two] = controlPoints(from, to, upright);
    const d = `M${from} C${one} ${two} ${to}`;
    const dashes = dashed ? "3 4" : undefined;
    return this.put("path", {
      d,
      fill: "none",
      stroke,
      "stroke-width": width,
      opacity,
      "stroke-linecap": "round",
      "stroke-dasharray": dashes,
    });
  }

  /** @type {DrawingContext["text"]} */
  text(x, y, text, { fill = "black", size = 13, anchor = "start", turn = 0, bold = false, opacity, halo } = {}) {
    const element = this.put("text", {
      x,
      y,
      fill,
      opacity,
      "font-size": size,
      "font-family": FONT,
      "font-weight": bold ? 600 : undefined,
      "text-anchor": anchor,
      "dominant-baseline": "central",
      transform: turn ? `rotate(${turn} ${x} ${y})` : undefined,
      stroke: halo,
      "stroke-width": halo ? 4 : undefined,
      "stroke-linejoin": halo ? "round" : undefined,
      "paint-order": halo ? "stroke" : undefined,
    });
    element.textContent = text;
    return element;
  }
}

/**
 * Return the control points of a curve whose ends are horizontal, or vertical.
 * @param {[number, number]} from
 * @param {[number, number]} to
 * @param {boolean} upright
 * @returns {[[number, number], [number, number]]}
 */
function controlPoints([x, y], [toX, toY], upright) {
  const [middleX, middleY] = [(x + toX) / 2, (y + toY) / 2];
  return upright
    ? [
        [x, middleY],
        [toX, middleY],
      ]
    : [
        [middleX, y],
        [middleX, toY],
      ];
}

const ruler = document.createElement("canvas").getContext("2d");

/** @type {Map<string, number>} cached text widths */
const measured = new Map();

/**
 * Return the width of a text in pixels.
 * @param {string} text
 * @param {number} [size]
 * @param {boolean} [bold]
 */
export function textWidth(text, size = 13, bold = false) {
  if (!ruler) return text.length * size * 0.6;
  const key = `${size} ${bold} ${text}`;
  const known = measured.get(key);
  if (known !== undefined) return known;
  ruler.font = `${bold ? 600 : 400} ${size}px ${FONT}`;
  const { width } = ruler.measureText(text);
  if (measured.size > 5000) measured.clear();
  measured.set(key, width);
  return width;
}

/**
 * Truncate a text to a number of letters.
 * @param {string} text
 * @param {number} limit letters
 */
export function truncate(text, limit = 18) {
  const letters = [...text];
  return letters.length <= limit ? text : `${letters.slice(0, limit - 1).join("")}…`;
}

/**
 * @typedef {{ width: number, height: number, draw: (context: DrawingContext) => void }} Drawing
 */

/**
 * Return a drawing as an SVG element.
 * @param {Drawing} drawing
 */
export function toSvg({ width, height, draw }) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("width", String(width));
  svg.setAttribute("height", String(height));
  draw(new SvgContext(svg));
  return svg;
}

/**
 * Draw on a canvas, at the resolution of the screen by default.
 * @param {Drawing} drawing
 * @param {HTMLCanvasElement} canvas
 * @param {number} [scale]
 */
export function drawOnCanvas({ width, height, draw }, canvas, scale = devicePixelRatio) {
  canvas.width = Math.ceil(width * scale);
  canvas.height = Math.ceil(height * scale);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  if (!context) return;
  context.scale(scale, scale);
  draw(new CanvasContext(context));
}
