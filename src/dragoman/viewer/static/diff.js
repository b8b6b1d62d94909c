// Word-level diff of two outputs.

/**
 * Return the longest common subsequence of two lists of words, as pairs of indices.
 * @param {string[]} before
 * @param {string[]} after
 * @returns {[number, number][]}
 */
export function commonSubsequence(before, after) {
  const width = after.length + 1;
  const longest = new Uint16Array((before.length + 1) * width);
  for (let i = before.length - 1; i >= 0; i--) {
    for (let j = after.length - 1; j >= 0; j--) {
      longest[i * width + j] =
        before[i] === after[j]
          ? 1 + (longest[(i + 1) * width + j + 1] ?? 0)
          : Math.max(longest[(i + 1) * width + j] ?? 0, longest[i * width + j + 1] ?? 0);
    }
  }
  /** @type {[number, number][]} */
  const pairs = [];
  for (let i = 0, j = 0; i < before.length && j < after.length;) {
    if (before[i] === after[j]) pairs.push([i++, j++]);
    else if ((longest[(i + 1) * width + j] ?? 0) >= (longest[i * width + j + 1] ?? 0)) i++;
    else j++;
  }
  return pairs;
}

/**
 * Return the indices of the removed words and of the added words.
 * @param {string[]} before
 * @param {string[]} after
 */
export function diffWords(before, after) {
  const pairs = commonSubsequence(before, after);
  const [old, now] = [new Set(pairs.map(([i]) => i)), new Set(pairs.map(([, j]) => j))];
  return {
    removed: before.map((_, i) => i).filter((i) => !old.has(i)),
    added: after.map((_, j) => j).filter((j) => !now.has(j)),
  };
}
