// A look: one translation from inside. What the document holds, and numbers taken from it. Nothing is drawn here.

/**
 * @typedef {"encoder" | "decoder" | "cross"} Kind
 * @typedef {"source" | "target"} Side
 * @typedef {"words" | "pieces"} Units
 * @typedef {[number, number]} HeadPlace layer and head, from 0
 * @typedef {[Kind, number, number]} Head
 * @typedef {{ label: string, first: number, end: number, special: boolean, span: [number, number] | null }} Unit
 *   a word or a piece: the pieces it is made of, and its place in the text
 * @typedef {{ text: string, spaced: boolean, words: Unit[], pieces: Unit[] }} Sentence
 * @typedef {{ layers: number, heads: number, rows: string[], columns: string[], weights: string }} Matrices
 * @typedef {{ log_probability: number, best: [string, number][] }} Step
 * @typedef {[number, number, number]} Link source word, target word, weight
 * @typedef {{ about: string, layer: number | null, links: Link[], pharaoh: string, error_rate: number | null }} Method
 * @typedef {{ methods: Record<string, Method>, chosen: string, gold: string | null }} Alignment
 * @typedef {{ id: number, parent: number | null, token: number, piece: string, text: string, step: number,
 *   log_probability: number, sum: number, score: number, state: "chosen" | "finished" | "live" | "pruned" }} BeamNode
 * @typedef {{ nodes: BeamNode[], width: number, length_penalty: number, layer: number, attention: string }} Beam
 * @typedef {{ kind: Kind, layer: number, head: number, badges: string[], importance?: number, [name: string]: unknown }}
 *   HeadReport
 * @typedef {{ step: number, heads: HeadReport[] }} Past the heads at a checkpoint
 * @typedef {{ heads: HeadReport[], loss?: number, data?: { name: string, sentences: number }, history?: Past[] }} Report
 * @typedef {{ title: string, model: string, skin: string, prefix: string[], given: number, source: Sentence,
 *   target: Sentence, kinds: Record<Kind, Matrices>, steps: Step[], alignment: Alignment, beam: Beam | null,
 *   report: Report | null, history: unknown, without: Head[], switchable: boolean, compare: Look | null }} Look
 * @typedef {{ side: Side, first: number, end: number }} Point some pieces of one side that are pointed at
 * @typedef {{ values: Float32Array, rows: Unit[], columns: Unit[] }} Table weights, row by row, and what they belong to
 */

/** @type {Kind[]} */
export const KINDS = ["encoder", "decoder", "cross"];

/** @type {Record<Kind, { name: string, about: string, row: Side, column: Side }>} */
export const ABOUT = {
  encoder: {
    name: "Encoder self-attention",
    about: "each piece of the source looks at the source",
    row: "source",
    column: "source",
  },
  decoder: {
    name: "Decoder self-attention",
    about: "each step looks at what was read before it",
    row: "target",
    column: "target",
  },
  cross: { name: "Cross-attention", about: "each step looks at the source", row: "target", column: "source" },
};

/**
 * Return the item at a place that is known to hold one.
 * @template T
 * @param {ArrayLike<T>} items
 * @param {number} place
 * @returns {T}
 */
export function at(items, place) {
  const item = items[place];
  if (item === undefined) throw new RangeError(`there is nothing at ${place} of ${items.length}`);
  return item;
}

/** @param {string} text in base64 */
const decoded = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));

/** The numbers of a look, unpacked when they are first needed. */
export class Inside {
  /** @param {Look} look */
  constructor(look) {
    this.look = look;
    /** @type {Map<string, Uint8Array>} */
    this.unpacked = new Map();
    /** @type {Map<string, Table>} */
    this.tables = new Map();
  }

  /**
   * Return all weights of a kind, a byte each: layers, heads, rows, columns.
   * @param {Kind} kind
   */
  bytes(kind) {
    return this.unpack(kind, this.look.kinds[kind].weights);
  }

  /** Return where the step of each node of the beam looked, a byte a weight: nodes, source pieces. */
  beamBytes() {
    return this.unpack("beam", this.look.beam?.attention ?? "");
  }

  /**
   * @param {string} name
   * @param {string} packed
   */
  unpack(name, packed) {
    const found = this.unpacked.get(name) ?? decoded(packed);
    this.unpacked.set(name, found);
    return found;
  }

  /** Return the kinds of attention that the architecture has. */
  kinds() {
    return KINDS.filter((kind) => this.look.kinds[kind].layers > 0);
  }

  /** Return the kind to begin with: what looks at the source, if anything does. */
  firstKind() {
    return this.kinds().at(-1) ?? "cross";
  }

  /**
   * Return every head of a kind.
   * @param {Kind} kind
   * @returns {HeadPlace[]}
   */
  everyHead(kind) {
    const { layers, heads } = this.look.kinds[kind];
    return Array.from({ length: layers * heads }, (_, i) => [Math.floor(i / heads), i % heads]);
  }

  /**
   * Return what looks, or what is looked at, in the units asked for.
   * @param {Kind} kind
   * @param {"row" | "column"} axis
   * @param {Units} units
   * @returns {Unit[]}
   */
  units(kind, axis, units) {
    const all = this.look[ABOUT[kind][axis]][units];
    if (kind !== "decoder" || axis === "row") return all;
    // The decoder has read the start and then what it wrote, but for the end.
    const start = { label: at(this.look.prefix, 0), first: 0, end: 1, special: true, span: null };
    const read = all.filter((unit) => !unit.special);
    return [start, ...read.map((unit) => ({ ...unit, first: unit.first + 1, end: unit.end + 1 }))];
  }

  /**
   * Return the mean weights of some heads: of a word's pieces the mean where they look, the sum where they are looked at.
   * @param {Kind} kind
   * @param {HeadPlace[]} heads
   * @param {Units} units
   * @returns {Table}
   */
  table(kind, heads, units) {
    const key = `${kind} ${units} ${heads.join(" ")}`;
    const found = this.tables.get(key) ?? this.computed(kind, heads, units);
    if (this.tables.size > 40) this.tables.clear();
    this.tables.set(key, found);
    return found;
  }

  /**
   * @param {Kind} kind
   * @param {HeadPlace[]} heads
   * @param {Units} units
   * @returns {Table}
   */
  computed(kind, heads, units) {
    const rows = this.units(kind, "row", units);
    const columns = this.units(kind, "column", units);
    const { heads: count, rows: rowNames, columns: columnNames } = this.look.kinds[kind];
    const [height, width] = [rowNames.length, columnNames.length];
    const bytes = this.bytes(kind);
    const sums = new Float32Array(height * width);
    for (const [layer, head] of heads) {
      const start = (layer * count + head) * sums.length;
      for (let i = 0; i < sums.length; i++) sums[i] = (sums[i] ?? 0) + (bytes[start + i] ?? 0);
    }
    const values = new Float32Array(rows.length * columns.length);
    rows.forEach((row, r) =>
      columns.forEach((column, c) => {
        let sum = 0;
        for (let i = row.first; i < row.end; i++) {
          for (let j = column.first; j < column.end; j++) sum += sums[i * width + j] ?? 0;
        }
        values[r * columns.length + c] = sum / (255 * Math.max(1, heads.length) * (row.end - row.first));
      }),
    );
    return { values, rows, columns };
  }

  /**
   * Return where a node of the beam looked, by units of the source.
   * @param {number} node
   * @param {Units} units
   */
  nodeShares(node, units) {
    const width = this.look.kinds.cross.columns.length;
    const bytes = this.beamBytes();
    return this.look.source[units].map((unit) => {
      let sum = 0;
      for (let j = unit.first; j < unit.end; j++) sum += bytes[node * width + j] ?? 0;
      return sum / 255;
    });
  }
}

/**
 * Return how much of the weight lies on the start and the end, mean over rows, and what they are called.
 * @param {Table} table
 */
export function sinks({ values, rows, columns }) {
  const special = columns.map((column, c) => ({ column, c })).filter(({ column }) => column.special);
  let sum = 0;
  for (let r = 0; r < rows.length; r++) for (const { c } of special) sum += values[r * columns.length + c] ?? 0;
  return { mass: rows.length ? sum / rows.length : 0, names: special.map(({ column }) => column.label) };
}

/**
 * Return which rows and columns of a kind are pointed at.
 * @param {Kind} kind
 * @param {Point | null} point
 * @param {Point | null} partner
 * @returns {{ row: Point | null, column: Point | null }}
 */
export function pointed(kind, point, partner) {
  if (kind === "cross") {
    const of = (/** @type {Side} */ side) => [point, partner].find((each) => each?.side === side) ?? null;
    return { row: of("target"), column: of("source") };
  }
  const own = ABOUT[kind].row;
  const mine = (/** @type {Point | null} */ each) => (each && each.side === own ? each : null);
  return { row: mine(point), column: later(kind, mine(partner)) };
}

/**
 * Return a point of the target as a place among what the decoder has read, one later.
 * @param {Kind} kind
 * @param {Point | null} point
 */
const later = (kind, point) =>
  point && kind === "decoder" ? { ...point, first: point.first + 1, end: point.end + 1 } : point;

/**
 * Return the point that a unit of a row or column stands for.
 * @param {Kind} kind
 * @param {"row" | "column"} axis
 * @param {Unit} unit
 * @returns {Point | null}
 */
export function pointOf(kind, axis, unit) {
  const side = ABOUT[kind][axis];
  if (kind !== "decoder" || axis === "row") return { side, first: unit.first, end: unit.end };
  return unit.first ? { side, first: unit.first - 1, end: unit.end - 1 } : null;
}

/**
 * Return the places of the units that a point touches, as [first, end), or null.
 * @param {Unit[]} units
 * @param {{ first: number, end: number } | null} point
 * @returns {[number, number] | null}
 */
export function touched(units, point) {
  if (!point) return null;
  const first = units.findIndex((unit) => unit.first < point.end && unit.end > point.first);
  if (first < 0) return null;
  let end = first + 1;
  while (end < units.length && at(units, end).first < point.end) end++;
  return [first, end];
}

/**
 * Return what some heads are called.
 * @param {Inside} inside
 * @param {Kind} kind
 * @param {HeadPlace[]} heads
 */
export function nameOf(inside, kind, heads) {
  const { layers, heads: count } = inside.look.kinds[kind];
  if (!heads.length) return "no heads";
  const [layer, head] = at(heads, 0);
  const oneLayer = heads.every((place) => place[0] === layer);
  const oneHead = heads.every((place) => place[1] === head);
  if (heads.length === 1) return `layer ${layer + 1}, head ${head + 1}`;
  if (heads.length === layers * count) return `mean of all ${heads.length} heads`;
  if (oneLayer && heads.length === count) return `layer ${layer + 1}, mean of its heads`;
  if (oneHead && heads.length === layers) return `head ${head + 1}, mean of all layers`;
  return `mean of ${heads.map((place) => `${place[0] + 1}.${place[1] + 1}`).join(", ")}`;
}

/** @param {number} weight */
export const percent = (weight) => `${Math.round(100 * weight)}\u00a0%`;

/** @param {number} logProbability */
export const probability = (logProbability) => {
  const value = Math.exp(logProbability);
  return value >= 0.0995 ? value.toFixed(2) : value.toPrecision(1);
};
