// The part of the URL after "#": the state of the page, for sharing. Browsers do not send it to servers.

const MAX_LENGTH = 1000; // characters of a value; longer ones are dropped

/** Return the state in the URL. */
export const readUrlState = () => new URLSearchParams(location.hash.slice(1));

/**
 * Change some keys of the state in the URL; an empty value removes its key.
 * @param {Record<string, string>} changes
 */
export function updateUrlState(changes) {
  const state = readUrlState();
  for (const [key, value] of Object.entries(changes)) {
    if (value && value.length <= MAX_LENGTH) state.set(key, value);
    else state.delete(key);
  }
  const url = state.size ? `#${state}` : location.pathname + location.search;
  if (url !== location.hash) history.replaceState(history.state, "", url);
}
