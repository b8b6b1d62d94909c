// The numbers as a table: a row for each validation, or for some steps where there is none yet.

import {valueAt} from "./curve.js";
import {make} from "./elements.js";
import {short, whole} from "./numbers.js";

/** @typedef {import("./summary.js").Summary} Summary @typedef {import("./summary.js").Point} Point */

const ROWS = 100;

/**
 * Fill the table, the newest step first.
 * @param {HTMLTableElement} table
 * @param {Summary} summary
 */
export function fillTable(table, {curves, measure, validations}) {
  const {loss, perplexity, score, rate, speed} = curves;
  /** @type {[heading: string, points: Point[], exact: boolean][]} */
  const columns = [
    ["Training loss", loss.training ?? [], false], ["Validation loss", loss.validation ?? [], true],
    ["Perplexity", perplexity.validation ?? [], true], [measure || "Score", score.validation ?? [], true],
    ["Learning rate", rate.training ?? [], false], ["Tokens/s", speed.training ?? [], false],
  ];
  const headings = ["Step", ...columns.map(([heading]) => heading)];
  const trained = loss.training ?? [];
  const steps = new Set([...(validations.length ? validations : every(trained)), ...last(trained)]);
  const rows = [...steps].sort((a, b) => b - a).slice(0, ROWS).map((step) => make(
    "tr", "", null, heading(whole(step), "row"),
    ...columns.map(([, points, exact]) => make("td", "", read(points, step, exact))),
  ));
  table.replaceChildren(
    make("thead", "", null, make("tr", "", null, ...headings.map((text) => heading(text, "col")))),
    make("tbody", "", null, ...rows),
  );
}

/** @param {string} text @param {"row" | "col"} scope @returns {HTMLElement} */
const heading = (text, scope) => Object.assign(make("th", "", text), {scope});

/** Return some of the steps of a line. @param {Point[]} points */
const every = (points) => points.filter((_, i) => i % Math.ceil(points.length / 20) === 0).map(([step]) => step);

/** Return the last step of a line. @param {Point[]} points */
const last = (points) => points.slice(-1).map(([step]) => step);

/** Write the value at a step. @param {Point[]} points @param {number} step @param {boolean} exact */
function read(points, step, exact) {
  const at = valueAt(points, step);
  return at && (!exact || at[0] === step) ? short(at[1]) : "";
}
