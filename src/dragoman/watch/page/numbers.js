// Formatting of numbers.

const WHOLE = new Intl.NumberFormat("en", {maximumFractionDigits: 0});
const TICK = new Intl.NumberFormat("en", {maximumSignificantDigits: 4});

/**
 * Format a value with about three significant digits.
 * @param {number} value
 * @returns {string}
 */
export function formatValue(value) {
  const size = Math.abs(value);
  if (size >= 1000) return WHOLE.format(value);
  if (size >= 100) return value.toFixed(0);
  if (size >= 10) return value.toFixed(1);
  if (size >= 0.1 || size === 0) return value.toFixed(size === 0 ? 0 : size >= 1 ? 2 : 3);
  return value.toExponential(1).replace("e-", "e−").replace("e+", "e");
}

/**
 * Format the label of an axis tick.
 * @param {number} value
 * @returns {string}
 */
export const formatTick = (value) => (value && Math.abs(value) < 0.001 ? formatValue(value) : TICK.format(value));

/**
 * Format an integer with thousands separators.
 * @param {number} value
 * @returns {string}
 */
export const formatInteger = (value) => WHOLE.format(value);

/**
 * Format a duration as 45 s, 2 min 05 s, 12 min or 3 h 05 min.
 * @param {number} seconds
 * @returns {string}
 */
export function formatDuration(seconds) {
  const all = Math.round(seconds), minutes = Math.round(seconds / 60);
  if (all < 90) return `${all} s`;
  if (all < 600) return `${Math.floor(all / 60)} min ${String(all % 60).padStart(2, "0")} s`;
  return minutes < 90 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} min`;
}

/**
 * Return about `count` round values within a range.
 * @param {number} low
 * @param {number} high
 * @param {number} count
 * @returns {number[]}
 */
export function ticks(low, high, count) {
  const rough = (high - low) / Math.max(1, count);
  if (!(rough > 0)) return [low];
  const size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((times) => times * size).find((each) => each >= rough * 0.7) ?? size;
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  return Array.from({length: last - first + 1}, (_, i) => Number(((first + i) * step).toPrecision(12)));
}

/**
 * Return 1, 2 and 5 times powers of ten within a range; only the powers if the range is wide.
 * @param {number} low
 * @param {number} high
 * @returns {number[]}
 */
export function logTicks(low, high) {
  const powers = Array.from({length: 30}, (_, i) => 10 ** (i - 12));
  const wide = high / low > 200;
  const all = powers.flatMap((power) => (wide ? [power] : [power, 2 * power, 5 * power]));
  return all.filter((value) => value >= low * 0.999 && value <= high * 1.001);
}
