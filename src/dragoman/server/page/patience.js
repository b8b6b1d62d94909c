// Asking again: the newest question only, and again by itself when the server is busy or away.

import { Problem } from "./service.js";

/**
 * Return a function that runs one task at a time: a newer one ends the one before, whose answer is dropped.
 * @returns {<R>(task: (signal: AbortSignal) => Promise<R>) => Promise<R | undefined>}
 */
export function newestOnly() {
  let current = new AbortController();
  return async (task) => {
    current.abort();
    const own = (current = new AbortController());
    try {
      const answer = await task(own.signal);
      return own.signal.aborted ? undefined : answer;
    } catch (problem) {
      if (own.signal.aborted) return undefined;
      throw problem;
    }
  };
}

/**
 * Ask until there is an answer, or a problem that waiting does not solve.
 * @template R
 * @param {() => Promise<R>} task
 * @param {AbortSignal} signal
 * @param {(problem: Problem, seconds: number) => void} tell called every second of waiting
 * @returns {Promise<R>}
 */
export async function patiently(task, signal, tell) {
  for (let tries = 0; ; tries++) {
    try {
      return await task();
    } catch (problem) {
      const seconds = problem instanceof Problem && !signal.aborted ? problem.secondsToWait(tries) : null;
      if (!(problem instanceof Problem) || seconds === null) throw problem;
      await waited(problem, Math.ceil(seconds), signal, tell);
    }
  }
}

/** Tell whoever waits that the moment has come, as the button "Try now" and a returning network do. */
export const retryNow = () => document.dispatchEvent(new Event("retry-now"));
addEventListener("online", retryNow);

/**
 * Count the seconds down.
 * @param {Problem} problem
 * @param {number} seconds
 * @param {AbortSignal} signal
 * @param {(problem: Problem, seconds: number) => void} tell
 * @returns {Promise<void>}
 */
function waited(problem, seconds, signal, tell) {
  return new Promise((resolve, reject) => {
    const until = Date.now() + 1000 * seconds;
    const left = () => Math.max(0, Math.round((until - Date.now()) / 1000));
    const clock = setInterval(() => (left() ? tell(problem, left()) : done()), 1000);
    const stop = () => {
      clearInterval(clock);
      document.removeEventListener("retry-now", done);
      signal.removeEventListener("abort", giveUp);
    };
    const done = () => (stop(), resolve());
    const giveUp = () => (stop(), reject(signal.reason));
    document.addEventListener("retry-now", done);
    signal.addEventListener("abort", giveUp);
    tell(problem, seconds);
  });
}
