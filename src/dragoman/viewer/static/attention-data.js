// The attention record that the server sends, and the numbers computed from it. Nothing is drawn here.

/**
 * @typedef {"encoder" | "decoder" | "cross"} Kind
 * @typedef {"source" | "target"} Side
 * @typedef {"words" | "pieces"} Units
 * @typedef {[number, number]} HeadPosition layer and head, from 0
 * @typedef {[Kind, number, number]} Head
 * @typedef {{ label: string, first: number, end: number, special: boolean, span: [number, number] | null }} Unit
 *   a word or a piece: its range of pieces and of characters
 * @typedef {{ text: string, spaced: boolean, words: Unit[], pieces: Unit[] }} Sentence
 * @typedef {{ layers: number, heads: number, rows: string[], columns: string[], weights: string }} Matrices
 * @typedef {{ log_probability: number, top_choices: [string, number][] }} Step
 * @typedef {[number, number, number]} Link source word, target word, weight
 * @typedef {{ description: string, layer: number | null, links: Link[], pharaoh: string, error_rate: number | null }} Method
 * @typedef {{ methods: Record<string, Method>, preferred: string, gold: string | null }} Alignment
 * @typedef {{ id: number, parent: number | null, token: number, piece: string, text: string, step: number,
 *   log_probability: number, sum: number, score: number, status: "chosen" | "finished" | "live" | "pruned" }} BeamNode
 * @typedef {{ nodes: BeamNode[], width: number, length_penalty: number, layer: number, attention: string }} Beam
 * @typedef {{ kind: Kind, layer: number, head: number, badges: string[], importance?: number, [name: string]: unknown }}
 *   HeadReport
 * @typedef {{ step: number, heads: HeadReport[] }} PastReport the heads at a checkpoint
 * @typedef {{ heads: HeadReport[], loss?: number, data?: { name: string, sentences: number, unit?: string }, history?: PastReport[] }} Report
 * @typedef {{ frames: string, bands: number, seconds: number }} Signal one byte per band of each frame, in base64
 * @typedef {{ title: string, model: string, skin: string, signal: Signal | null, prefix: string[], forced_length: number, source: Sentence,
 *   target: Sentence, kinds: Record<Kind, Matrices>, steps: Step[], alignment: Alignment, beam: Beam | null,
 *   report: Report | null, history: unknown, ablated_heads: Head[], can_ablate: boolean,
 *   compare: AttentionRecord | null }} AttentionRecord
 * @typedef {{ side: Side, first: number, end: number }} Point a range of pieces of one side
 * @typedef {{ values: Float32Array, rows: Unit[], columns: Unit[] }} Table weights in row-major order, with their labels
 */

/** @type {Kind[]} */
export const KINDS = ["encoder", "decoder", "cross"];

/** @type {Record<Kind, { name: string, description: string, row: Side, column: Side }>} */
export const KIND_INFO = {
  encoder: {
    name: "Encoder self-attention",
    description: "source tokens attend to the source",
    row: "source",
    column: "source",
  },
  decoder: {
    name: "Decoder self-attention",
    description: "output positions attend to the tokens before them",
    row: "target",
    column: "target",
  },
  cross: { name: "Cross-attention", description: "output positions attend to the source", row: "target", column: "source" },
};

/**
 * Return the item at an index that must exist.
 * @template T
 * @param {ArrayLike<T>} items
 * @param {number} index
 * @returns {T}
 */
export function at(items, index) {
  const item = items[index];
  if (item === undefined) throw new RangeError(`index ${index} is out of range for length ${items.length}`);
  return item;
}

/** @param {string} text in base64 */
export const decodeBytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));

/** The weights of a record, decoded when first needed. */
export class AttentionData {
  /** @param {AttentionRecord} record */
  constructor(record) {
    this.record = record;
    /** @type {Map<string, Uint8Array>} */
    this.unpacked = new Map();
    /** @type {Map<string, Table>} */
    this.tables = new Map();
  }

  /**
   * Return all weights of a kind, one byte per weight: layers, heads, rows, columns.
   * @param {Kind} kind
   */
  bytes(kind) {
    return this.unpack(kind, this.record.kinds[kind].weights);
  }

  /** Return the cross-attention of each node of the beam, one byte per weight: nodes, source pieces. */
  beamBytes() {
    return this.unpack("beam", this.record.beam?.attention ?? "");
  }

  /**
   * @param {string} name
   * @param {string} packed
   */
  unpack(name, packed) {
    const bytes = this.unpacked.get(name) ?? decodeBytes(packed);
    this.unpacked.set(name, bytes);
    return bytes;
  }

  /** Return the kinds of attention that the architecture has. */
  kinds() {
    return KINDS.filter((kind) => this.record.kinds[kind].layers > 0);
  }

  /** Return the kind to show first: cross-attention if there is any. */
  firstKind() {
    return this.kinds().at(-1) ?? "cross";
  }

  /**
   * Return every head of a kind.
   * @param {Kind} kind
   * @returns {HeadPosition[]}
   */
  allHeads(kind) {
    const { layers, heads } = this.record.kinds[kind];
    return Array.from({ length: layers * heads }, (_, i) => [Math.floor(i / heads), i % heads]);
  }

  /**
   * Return the queries (rows) or keys (columns) of a kind, as words or pieces.
   * @param {Kind} kind
   * @param {"row" | "column"} axis
   * @param {Units} units
   * @returns {Unit[]}
   */
  units(kind, axis, units) {
    const all = this.record[KIND_INFO[kind][axis]][units];
    if (kind !== "decoder" || axis === "row") return all;
    // The decoder's input is ⟨start⟩ followed by the output without ⟨end⟩.
    const start = { label: at(this.record.prefix, 0), first: 0, end: 1, special: true, span: null };
    const inputs = all.filter((unit) => !unit.special);
    return [start, ...inputs.map((unit) => ({ ...unit, first: unit.first + 1, end: unit.end + 1 }))];
  }

  /**
   * Return the mean weights of some heads; for words, averaged over the pieces of a query and summed over those of a key.
   * @param {Kind} kind
   * @param {HeadPosition[]} heads
   * @param {Units} units
   * @returns {Table}
   */
  table(kind, heads, units) {
    const key = `${kind} ${units} ${heads.join(" ")}`;
    const table = this.tables.get(key) ?? this.computeTable(kind, heads, units);
    if (this.tables.size > 40) this.tables.clear();
    this.tables.set(key, table);
    return table;
  }

  /**
   * @param {Kind} kind
   * @param {HeadPosition[]} heads
   * @param {Units} units
   * @returns {Table}
   */
  computeTable(kind, heads, units) {
    const rows = this.units(kind, "row", units);
    const columns = this.units(kind, "column", units);
    const { heads: count, rows: rowNames, columns: columnNames } = this.record.kinds[kind];
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
   * Return the cross-attention of a beam node, by units of the source.
   * @param {number} node
   * @param {Units} units
   */
  nodeShares(node, units) {
    const width = this.record.kinds.cross.columns.length;
    const bytes = this.beamBytes();
    return this.record.source[units].map((unit) => {
      let sum = 0;
      for (let j = unit.first; j < unit.end; j++) sum += bytes[node * width + j] ?? 0;
      return sum / 255;
    });
  }
}

/**
 * Return the share of the weight on ⟨start⟩ and ⟨end⟩, averaged over rows, and their labels.
 * @param {Table} table
 */
export function sinks({ values, rows, columns }) {
  const special = columns.map((column, c) => ({ column, c })).filter(({ column }) => column.special);
  let sum = 0;
  for (let r = 0; r < rows.length; r++) for (const { c } of special) sum += values[r * columns.length + c] ?? 0;
  return { mass: rows.length ? sum / rows.length : 0, names: special.map(({ column }) => column.label) };
}

/**
 * Return the hovered rows and columns of a kind.
 * @param {Kind} kind
 * @param {Point | null} point
 * @param {Point | null} partner
 * @returns {{ row: Point | null, column: Point | null }}
 */
export function axisPoints(kind, point, partner) {
  if (kind === "cross") {
    const of = (/** @type {Side} */ side) => [point, partner].find((each) => each?.side === side) ?? null;
    return { row: of("target"), column: of("source") };
  }
  const own = KIND_INFO[kind].row;
  const mine = (/** @type {Point | null} */ each) => (each && each.side === own ? each : null);
  return { row: mine(point), column: shiftToInput(kind, mine(partner)) };
}

/**
 * Return a point of the output as a point of the decoder's input, which is shifted by one.
 * @param {Kind} kind
 * @param {Point | null} point
 */
const shiftToInput = (kind, point) =>
  point && kind === "decoder" ? { ...point, first: point.first + 1, end: point.end + 1 } : point;

/**
 * Return the point of a row or column.
 * @param {Kind} kind
 * @param {"row" | "column"} axis
 * @param {Unit} unit
 * @returns {Point | null}
 */
export function unitPoint(kind, axis, unit) {
  const side = KIND_INFO[kind][axis];
  if (kind !== "decoder" || axis === "row") return { side, first: unit.first, end: unit.end };
  return unit.first ? { side, first: unit.first - 1, end: unit.end - 1 } : null;
}

/**
 * Return the index range [first, end) of the units that a point overlaps, or null.
 * @param {Unit[]} units
 * @param {{ first: number, end: number } | null} point
 * @returns {[number, number] | null}
 */
export function unitRange(units, point) {
  if (!point) return null;
  const first = units.findIndex((unit) => unit.first < point.end && unit.end > point.first);
  if (first < 0) return null;
  let end = first + 1;
  while (end < units.length && at(units, end).first < point.end) end++;
  return [first, end];
}

/**
 * Return a label of a set of heads.
 * @param {AttentionData} data
 * @param {Kind} kind
 * @param {HeadPosition[]} heads
 */
export function headsLabel(data, kind, heads) {
  const { layers, heads: count } = data.record.kinds[kind];
  if (!heads.length) return "no heads";
  const [layer, head] = at(heads, 0);
  const oneLayer = heads.every((position) => position[0] === layer);
  const oneHead = heads.every((position) => position[1] === head);
  if (heads.length === 1) return `layer ${layer + 1}, head ${head + 1}`;
  if (heads.length === layers * count) return `mean of all ${heads.length} heads`;
  if (oneLayer && heads.length === count) return `layer ${layer + 1}, mean of its heads`;
  if (oneHead && heads.length === layers) return `head ${head + 1}, mean of all layers`;
  return `mean of ${heads.map(([l, h]) => `${l + 1}.${h + 1}`).join(", ")}`;
}

/** @param {number} weight */
export const formatPercent = (weight) => `${Math.round(100 * weight)}\u00a0%`;

/** @param {number} logProbability */
export const formatProbability = (logProbability) => {
  const value = Math.exp(logProbability);
  return value >= 0.0995 ? value.toFixed(2) : value.toPrecision(1);
};
