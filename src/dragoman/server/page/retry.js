// Requests: only the latest counts, and it is repeated while the server is busy or cannot be reached.

import { ApiError } from "./api.js";

/**
 * Return a function that runs one task at a time: a new task aborts the previous one, which then resolves to undefined.
 * @returns {<R>(task: (signal: AbortSignal) => Promise<R>) => Promise<R | undefined>}
 */
export function latestOnly() {
  let current = new AbortController();
  return async (task) => {
    current.abort();
    const own = (current = new AbortController());
    try {
      const result = await task(own.signal);
      return own.signal.aborted ? undefined : result;
    } catch (error) {
      if (own.signal.aborted) return undefined;
      throw error;
    }
  };
}

/**
 * Run a task until it succeeds or fails with an error that waiting does not solve.
 * @template R
 * @param {() => Promise<R>} task
 * @param {AbortSignal} signal
 * @param {(error: ApiError, seconds: number) => void} onWait called every second while waiting
 * @returns {Promise<R>}
 */
export async function withRetry(task, signal, onWait) {
  for (let tries = 0; ; tries++) {
    try {
      return await task();
    } catch (error) {
      const seconds = error instanceof ApiError && !signal.aborted ? error.retrySeconds(tries) : null;
      if (!(error instanceof ApiError) || seconds === null) throw error;
      await waitBeforeRetry(error, Math.ceil(seconds), signal, onWait);
    }
  }
}

/** End all waiting; the button "Try now" and a returning network do this. */
export const retryNow = () => document.dispatchEvent(new Event("retry-now"));
addEventListener("online", retryNow);

/**
 * @param {ApiError} error
 * @param {number} seconds
 * @param {AbortSignal} signal
 * @param {(error: ApiError, seconds: number) => void} onWait
 * @returns {Promise<void>}
 */
function waitBeforeRetry(error, seconds, signal, onWait) {
  return new Promise((resolve, reject) => {
    const endsAt = Date.now() + 1000 * seconds;
    const remaining = () => Math.max(0, Math.round((endsAt - Date.now()) / 1000));
    const timer = setInterval(() => (remaining() ? onWait(error, remaining()) : finish()), 1000);
    const cleanUp = () => {
      clearInterval(timer);
      document.removeEventListener("retry-now", finish);
      signal.removeEventListener("abort", abort);
    };
    const finish = () => (cleanUp(), resolve());
    const abort = () => (cleanUp(), reject(signal.reason));
    document.addEventListener("retry-now", finish);
    signal.addEventListener("abort", abort);
    onWait(error, seconds);
  });
}
