// The summary that the server sends (watch/summary.py).

/**
 * @typedef {[step: number, value: number]} Point
 * @typedef {{source: string, reference: string, translation: string}} Sample
 * @typedef {"missing" | "preparing" | "training" | "finished" | "stopped"} Status
 * @typedef {"loss" | "perplexity" | "score" | "rate" | "speed"} CurveName
 * @typedef {{training?: Point[], validation?: Point[]}} Lines
 * @typedef {object} Summary
 * @property {string} run
 * @property {Status} status
 * @property {number | null} steps
 * @property {boolean} reads_recordings whether the source of a sample is the path of a recording
 * @property {Record<string, string>} facts
 * @property {number[]} checkpoints
 * @property {number} step
 * @property {number | null} seconds
 * @property {number | null} tokens_per_second
 * @property {number | null} seconds_left
 * @property {{step: number, loss: number} | null} best_validation
 * @property {Record<CurveName, Lines>} curves
 * @property {string} measure name of the score, as "BLEU"; empty if there is none
 * @property {number[]} validations
 * @property {Sample[]} samples
 */

/** Texts of the statuses. @type {Record<Status, string>} */
export const STATUS_TEXTS = {
  missing: "Waiting for training to start",
  preparing: "Preparing the data",
  training: "Training",
  finished: "Finished",
  stopped: "Stopped",
};

/**
 * Subscribe to the server's events; each message is a complete summary.
 * @param {(summary: Summary) => void} onSummary
 * @param {(here: boolean) => void} onConnection
 * @returns {EventSource}
 */
export function subscribe(onSummary, onConnection) {
  const events = new EventSource("events");
  events.addEventListener("message", (event) => {
    onConnection(true);
    onSummary(JSON.parse(event.data));
  });
  events.addEventListener("error", () => {
    onConnection(false);
    if (events.readyState === EventSource.CLOSED) setTimeout(() => subscribe(onSummary, onConnection), 3000);
  });
  return events;
}
