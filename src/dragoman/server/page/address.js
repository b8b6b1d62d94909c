// The part of the address behind "#": what is seen, so that it can be sent to someone. No server ever gets it.

const LONGEST = 1000; // characters of a text that an address is bent to hold

/** Return what the address holds. */
export const held = () => new URLSearchParams(location.hash.slice(1));

/**
 * Put something into the address, and leave the rest of it alone; nothing takes its key out.
 * @param {Record<string, string>} change
 */
export function hold(change) {
  const address = held();
  for (const [key, value] of Object.entries(change)) {
    if (value && value.length <= LONGEST) address.set(key, value);
    else address.delete(key);
  }
  const wanted = address.size ? `#${address}` : location.pathname + location.search;
  if (wanted !== location.hash) history.replaceState(history.state, "", wanted);
}
