// The metrics as a table: one row per validation, or for some steps if there is none.

import {valueAt} from "./curve.js";
import {make} from "../../viewer/static/dom.js";
import {formatValue, formatInteger} from "./numbers.js";

/** @typedef {import("./summary.js").Summary} Summary @typedef {import("./summary.js").Point} Point */

const ROWS = 100;

/**
 * Fill the table, newest step first.
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
  const steps = new Set([...(validations.length ? validations : sampleSteps(trained)), ...lastStep(trained)]);
  const rows = [...steps].sort((a, b) => b - a).slice(0, ROWS).map((step) => make(
    "tr", {}, heading(formatInteger(step), "row"),
    ...columns.map(([, points, exact]) => make("td", {}, valueText(points, step, exact))),
  ));
  table.replaceChildren(
    make("thead", {}, make("tr", {}, ...headings.map((text) => heading(text, "col")))),
    make("tbody", {}, ...rows),
  );
}

/** @param {string} text @param {"row" | "col"} scope @returns {HTMLElement} */
const heading = (text, scope) => make("th", {scope}, text);

/** Return about 20 steps of a line. @param {Point[]} points */
const sampleSteps = (points) => points.filter((_, i) => i % Math.ceil(points.length / 20) === 0).map(([step]) => step);

/** Return the last step of a line. @param {Point[]} points */
const lastStep = (points) => points.slice(-1).map(([step]) => step);

/** Format the value at a step. @param {Point[]} points @param {number} step @param {boolean} exact */
function valueText(points, step, exact) {
  const at = valueAt(points, step);
  return at && (!exact || at[0] === step) ? formatValue(at[1]) : "";
}
