// The client of the server's API. No other module sends requests.

/**
 * @typedef {{ name: string, source: string, target: string, source_name?: string, target_name?: string, noun: string,
 *   input_hint: string, has_language_pair: boolean, raw_text_io: boolean, never_split: boolean,
 *   is_language_model: boolean, reads_signals?: boolean, sampling: Record<string, number> | null }} Model
 * @typedef {{ code: string, name: string, targets?: string[] }} Language
 * @typedef {{ charLimit?: number, frontendTimeout?: number }} Settings
 * @typedef {{ text: string, score: number, log_probability: number, pictures?: string[] | null }} Translation
 * @typedef {{ text: string, model: string, prefix?: string, n_best?: number, beam?: number, pictures?: boolean,
 *   length?: number, temperature?: number, top_k?: number, top_p?: number, seed?: number }} TranslateRequest
 * @typedef {{ text?: string, model?: string, target?: string, prefix?: string,
 *   ablate_heads?: [string, number, number][], trace?: boolean, checkpoint?: string | number }} AttentionRequest
 * @typedef {Record<string, unknown>} AttentionDocument
 * @typedef {{ file: File, model: string, details: boolean }} TranscribeRequest details: the spectrogram and the attention
 * @typedef {{ text: string, start_seconds: number, end_seconds: number }} TimedWord
 * @typedef {{ frames: string, length: number, bands: number, seconds_per_frame: number }} SignalDetails bytes in base64
 * @typedef {{ tokens: { piece: string, start: number, end: number }[], weights: string, positions: number,
 *   seconds_per_position: number }} AttentionDetails
 * @typedef {{ text: string, start_seconds: number, end_seconds: number, words: TimedWord[], signal?: SignalDetails | null,
 *   attention?: AttentionDetails | null }} TranscriptSegment
 * @typedef {{ text: string, duration_seconds: number, segments: TranscriptSegment[], model: string }} Transcript
 */

const OFFLINE_DELAYS = [1, 2, 4, 8, 15]; // seconds before the first, second, … retry
const BUSY_STATUSES = [429, 502, 503, 504];

/** A failed request, with a message for the user. */
export class ApiError extends Error {
  /**
   * @param {string} message
   * @param {{ status?: number, code?: string, retryAfter?: number }} details
   */
  constructor(message, { status = 0, code = "", retryAfter } = {}) {
    super(message);
    this.status = status;
    this.code = code;
    this.retryAfter = retryAfter;
  }

  /** Whether the server requires a token, or another one. */
  get needsToken() {
    return this.status === 401;
  }

  /**
   * Return the seconds to wait before the next try; null if a retry does not help.
   * @param {number} tries number of tries that failed before this one
   */
  retrySeconds(tries) {
    if (this.code === "deadline" || (this.status && !BUSY_STATUSES.includes(this.status))) return null;
    return this.retryAfter ?? OFFLINE_DELAYS[Math.min(tries, OFFLINE_DELAYS.length - 1)] ?? 1;
  }
}

let token = "";

/**
 * Send this token with every further request; it is not stored.
 * @param {string} value
 */
export function setToken(value) {
  token = value;
}

/** @returns {Promise<Settings>} */
export const fetchSettings = () => request("frontend/settings");

/** @returns {Promise<Language[]>} */
export const fetchLanguages = () => request("languages");

/** @returns {Promise<{ version: string, models: Model[], limits?: Record<string, number> }>} */
export const fetchInfo = () => request("v1/info");

/**
 * Return the likeliest language of a text and the confidence in it, in percent.
 * @param {string} text
 * @returns {Promise<{ language: string, confidence: number } | null>}
 */
export async function detectLanguage(text) {
  const ranked = await request("detect", { body: { q: text } });
  return ranked[0] ?? null;
}

/**
 * Return the translations of one text, best first.
 * @param {TranslateRequest} body
 * @param {AbortSignal} signal
 * @returns {Promise<Translation[]>}
 */
export async function translate(body, signal) {
  const response = await request("v1/translate", { body, signal });
  return response.translations[0];
}

/**
 * Return the transcript of a recording.
 * @param {TranscribeRequest} fields
 * @param {AbortSignal} signal
 * @param {(share: number) => void} onUpload called with the share that has been sent
 * @returns {Promise<Transcript>}
 */
export async function transcribe({ file, model, details }, signal, onUpload) {
  const form = new FormData();
  form.append("model", model);
  form.append("details", String(details));
  form.append("file", file);
  const response = await upload("v1/transcribe", form, signal, onUpload);
  if (!response.ok) throw await errorOf(response);
  return response.json().catch(throwUnreachable);
}

/**
 * @param {AttentionRequest} body
 * @param {AbortSignal} [signal]
 * @returns {Promise<AttentionDocument>}
 */
export const fetchAttention = (body, signal) => request("v1/attention", { body, signal });

/**
 * Return the head report of a model; null if its heads have not been measured.
 * @param {string} model
 * @returns {Promise<object | null>}
 */
export async function fetchHeadReport(model) {
  try {
    return await request(`v1/report?model=${encodeURIComponent(model)}`);
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return null;
    throw error;
  }
}

/**
 * @param {string} model
 * @returns {Promise<unknown>}
 */
export const fetchCheckpoints = (model) => request(`v1/checkpoints?model=${encodeURIComponent(model)}`);

/**
 * Send a request and return the JSON of the response.
 * @param {string} path
 * @param {{ body?: object, signal?: AbortSignal }} [options]
 * @returns {Promise<any>}
 */
async function request(path, { body, signal } = {}) {
  /** @type {Record<string, string>} */
  const headers = body ? { "Content-Type": "application/json" } : {};
  if (token) headers.Authorization = `Bearer ${token}`;
  const options = { headers, signal, method: body ? "POST" : "GET", body: body && JSON.stringify(body) };
  const response = await fetch(path, { ...options, cache: "no-store" }).catch(throwUnreachable);
  if (!response.ok) throw await errorOf(response);
  return response.json().catch(throwUnreachable);
}

/**
 * Send a form and report the progress, which `fetch` does not.
 * @param {string} path
 * @param {FormData} form
 * @param {AbortSignal} signal
 * @param {(share: number) => void} onUpload
 * @returns {Promise<Response>}
 */
function upload(path, form, signal, onUpload) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("POST", path);
    if (token) request.setRequestHeader("Authorization", `Bearer ${token}`);
    request.upload.onprogress = ({ loaded, total }) => onUpload(loaded / total);
    request.upload.onload = () => onUpload(1);
    request.onload = () => resolve(responseOf(request));
    request.onerror = () => reject(unreachableError());
    request.onabort = () => reject(signal.reason);
    signal.addEventListener("abort", () => request.abort());
    request.send(form);
  });
}

/** @param {XMLHttpRequest} request */
function responseOf(request) {
  const retryAfter = request.getResponseHeader("Retry-After");
  return new Response(request.responseText, {
    status: request.status,
    headers: retryAfter ? { "Retry-After": retryAfter } : {},
  });
}

/**
 * Throw an ApiError for a failed connection; an aborted request stays an AbortError.
 * @param {unknown} error
 * @returns {never}
 */
function throwUnreachable(error) {
  if (error instanceof DOMException && error.name === "AbortError") throw error;
  throw unreachableError();
}

const unreachableError = () => new ApiError(navigator.onLine ? "The server is not responding." : "You are offline.");

/**
 * Return the message for a response without one, for example from a proxy that cannot reach the server.
 * @param {number} status
 */
function defaultMessage(status) {
  if (status === 429) return "The server is receiving too many requests.";
  return BUSY_STATUSES.includes(status) ? "The server cannot be reached." : `The server returned error ${status}.`;
}

/** @param {Response} response */
async function errorOf(response) {
  const body = await response.json().catch(() => ({}));
  const message = typeof body.error === "string" ? body.error : defaultMessage(response.status);
  const after = Number.parseFloat(response.headers.get("Retry-After") ?? "");
  const retryAfter = Number.isFinite(after) ? Math.max(1, after) : undefined;
  return new ApiError(message, { status: response.status, code: body.code, retryAfter });
}
