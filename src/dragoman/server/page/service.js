// What the page asks of the server, and what can go wrong with it. The only module that sends requests.

/**
 * @typedef {{ name: string, source: string, target: string, source_name?: string, target_name?: string, noun: string,
 *   input_hint: string, has_language_pair: boolean, raw_text_io: boolean, never_split: boolean, is_language_model: boolean }} Model
 * @typedef {{ code: string, name: string, targets?: string[] }} Language
 * @typedef {{ charLimit?: number, frontendTimeout?: number }} Settings
 * @typedef {{ text: string, score: number, log_probability: number, pictures?: string[] | null }} Translation
 * @typedef {{ text: string, model: string, prefix?: string, n_best?: number, beam?: number, pictures?: boolean,
 *   length?: number, temperature?: number, top_k?: number, top_p?: number, seed?: number }} Question
 * @typedef {{ text?: string, model?: string, target?: string, prefix?: string, without?: [string, number, number][],
 *   trace?: boolean, checkpoint?: string | number }} LookQuestion
 * @typedef {Record<string, unknown>} Look
 */

const OFFLINE_WAITS = [1, 2, 4, 8, 15]; // seconds before the first, second, … try again
const BUSY = [429, 502, 503, 504];

/** Something that went wrong, in words for the reader. */
export class Problem extends Error {
  /**
   * @param {string} message
   * @param {{ status?: number, code?: string, wait?: number }} facts `wait`: the seconds that the server asks for
   */
  constructor(message, { status = 0, code = "", wait } = {}) {
    super(message);
    this.status = status;
    this.code = code;
    this.wait = wait;
  }

  /** Whether the server wants a token, or another one. */
  get closed() {
    return this.status === 401;
  }

  /**
   * Return how many seconds to wait before asking again; null where asking again does not help.
   * @param {number} tries that have failed before this one
   */
  secondsToWait(tries) {
    if (this.code === "deadline" || (this.status && !BUSY.includes(this.status))) return null;
    return this.wait ?? OFFLINE_WAITS[Math.min(tries, OFFLINE_WAITS.length - 1)] ?? 1;
  }
}

let token = "";

/**
 * Send this token with every request from now on; it is kept nowhere else.
 * @param {string} secret
 */
export function useToken(secret) {
  token = secret;
}

/** @returns {Promise<Settings>} */
export const settings = () => ask("frontend/settings");

/** @returns {Promise<Language[]>} */
export const languages = () => ask("languages");

/** @returns {Promise<{ version: string, models: Model[] }>} */
export const info = () => ask("v1/info");

/**
 * Return the likeliest language of a text, and how sure that is in percent.
 * @param {string} text
 * @returns {Promise<{ language: string, confidence: number } | null>}
 */
export async function detect(text) {
  const found = await ask("detect", { body: { q: text } });
  return found[0] ?? null;
}

/**
 * Return the translations of one text, the best first.
 * @param {Question} question
 * @param {AbortSignal} signal
 * @returns {Promise<Translation[]>}
 */
export async function translate(question, signal) {
  const answer = await ask("v1/translate", { body: question, signal });
  return answer.translations[0];
}

/**
 * @param {LookQuestion} question
 * @param {AbortSignal} [signal]
 * @returns {Promise<Look>}
 */
export const attention = (question, signal) => ask("v1/attention", { body: question, signal });

/**
 * Return what was measured of a model's heads, null if nothing was.
 * @param {string} model
 * @returns {Promise<object | null>}
 */
export async function report(model) {
  try {
    return await ask(`v1/report?model=${encodeURIComponent(model)}`);
  } catch (problem) {
    if (problem instanceof Problem && problem.status === 404) return null;
    throw problem;
  }
}

/**
 * @param {string} model
 * @returns {Promise<unknown>}
 */
export const checkpoints = (model) => ask(`v1/checkpoints?model=${encodeURIComponent(model)}`);

/**
 * Send a request and return the JSON of its answer.
 * @param {string} path
 * @param {{ body?: object, signal?: AbortSignal }} [what]
 * @returns {Promise<any>}
 */
async function ask(path, { body, signal } = {}) {
  /** @type {Record<string, string>} */
  const headers = body ? { "Content-Type": "application/json" } : {};
  if (token) headers.Authorization = `Bearer ${token}`;
  const how = { headers, signal, method: body ? "POST" : "GET", body: body && JSON.stringify(body) };
  const response = await fetch(path, { ...how, cache: "no-store" }).catch(unreachable);
  if (!response.ok) throw await problemOf(response);
  return response.json().catch(unreachable);
}

/**
 * Turn a failed connection into words; a request that we ended ourselves stays what it is.
 * @param {unknown} fault
 * @returns {never}
 */
function unreachable(fault) {
  if (fault instanceof DOMException && fault.name === "AbortError") throw fault;
  throw new Problem(navigator.onLine ? "The server does not answer." : "You are offline.");
}

/**
 * Say what is wrong where the server does not, as what stands before it may: a proxy that cannot reach it.
 * @param {number} status
 */
function unexplained(status) {
  if (status === 429) return "Many requests at the moment.";
  return BUSY.includes(status) ? "The server cannot be reached." : `The server answers with error ${status}.`;
}

/** @param {Response} response */
async function problemOf(response) {
  const said = await response.json().catch(() => ({}));
  const message = typeof said.error === "string" ? said.error : unexplained(response.status);
  const after = Number.parseFloat(response.headers.get("Retry-After") ?? "");
  const wait = Number.isFinite(after) ? Math.max(1, after) : undefined;
  return new Problem(message, { status: response.status, code: said.code, wait });
}
