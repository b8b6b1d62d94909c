// The shape of what the server tells; it is made by summary.py.

/**
 * @typedef {[step: number, value: number]} Point
 * @typedef {{source: string, reference: string, translation: string}} Sample
 * @typedef {"missing" | "preparing" | "training" | "finished" | "stopped"} Situation
 * @typedef {"loss" | "perplexity" | "score" | "rate" | "speed"} CurveName
 * @typedef {{training?: Point[], validation?: Point[]}} Lines
 * @typedef {object} Summary
 * @property {string} run
 * @property {Situation} situation
 * @property {number | null} steps
 * @property {Record<string, string>} facts
 * @property {number[]} checkpoints
 * @property {number} step
 * @property {number | null} seconds
 * @property {number | null} speed
 * @property {number | null} left
 * @property {{step: number, loss: number} | null} best
 * @property {Record<CurveName, Lines>} curves
 * @property {string} measure what the score is: "BLEU", "WER"; nothing where there is none
 * @property {number[]} validations
 * @property {Sample[]} samples
 */

/** How the situation is put into words. @type {Record<Situation, string>} */
export const SITUATIONS = {
  missing: "Waiting for a training to begin",
  preparing: "Preparing the text",
  training: "Training",
  finished: "Finished",
  stopped: "Stopped",
};

/**
 * Listen to the server; whatever was missed while it was away is in the next message.
 * @param {(summary: Summary) => void} heard
 * @param {(here: boolean) => void} connected
 * @returns {EventSource}
 */
export function listen(heard, connected) {
  const events = new EventSource("events");
  events.addEventListener("message", (event) => {
    connected(true);
    heard(JSON.parse(event.data));
  });
  events.addEventListener("error", () => {
    connected(false);
    if (events.readyState === EventSource.CLOSED) setTimeout(() => listen(heard, connected), 3000);
  });
  return events;
}
