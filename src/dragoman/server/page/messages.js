// Messages below the result, with a button if there is something to do, and the form for a token.

import { ApiError } from "./api.js";
import { find } from "../../viewer/static/dom.js";
import { retryNow } from "./retry.js";

const message = find("message", HTMLElement);

/**
 * Show a message below the translation, with a button if there is an action; hide it if the text is empty.
 * @param {string} text
 * @param {{ isError?: boolean, label?: string, action?: () => void }} [options]
 */
export function showMessage(text, { isError = false, label = "", action } = {}) {
  message.classList.toggle("shown", Boolean(text)); // not `hidden`: screen readers do not announce unhidden text
  message.classList.toggle("bad", isError);
  find("message-text", HTMLElement).textContent = text;
  const button = find("message-act", HTMLButtonElement);
  button.hidden = !action;
  button.textContent = label;
  button.onclick = action ?? null;
}

/**
 * @param {ApiError} error
 * @param {number} seconds
 */
export const showWaiting = (error, seconds) =>
  showMessage(`${error.message} Trying again in ${seconds} s.`, { label: "Try now", action: retryNow });

/** @param {unknown} error */
export function showError(error) {
  if (error instanceof ApiError && error.needsToken) return askForToken();
  showMessage(error instanceof ApiError ? error.message : `Error in this page: ${error}`, { isError: true });
}

function askForToken() {
  find("token-form", HTMLElement).hidden = find("token-open", HTMLElement).hidden = false;
  const wasRefused = Boolean(find("token", HTMLInputElement).value);
  showMessage(wasRefused ? "The server rejected this token." : "", { isError: true });
  find("token", HTMLInputElement).focus();
}
