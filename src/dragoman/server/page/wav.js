// Recordings as WAV files: one channel of 16-bit samples.

export const HEADER_BYTES = 44;
export const BYTES_PER_SAMPLE = 2;

/**
 * Convert samples between -1 and 1 to 16 bits; louder ones are clipped.
 * @param {Float32Array} samples
 */
export const toPcm = (samples) => Int16Array.from(samples, (sample) => Math.round(32767 * Math.min(1, Math.max(-1, sample))));

/**
 * Return a WAV file.
 * @param {Int16Array[]} chunks samples, in order
 * @param {number} rate samples per second
 * @param {string} name
 */
export function encodeWav(chunks, rate, name) {
  const dataBytes = BYTES_PER_SAMPLE * chunks.reduce((sum, { length }) => sum + length, 0);
  return new File([encodeHeader(dataBytes, rate), ...chunks.map(toLittleEndian)], name, { type: "audio/wav" });
}

/**
 * @param {number} dataBytes
 * @param {number} rate
 */
function encodeHeader(dataBytes, rate) {
  const view = new DataView(new ArrayBuffer(HEADER_BYTES));
  /** @type {(offset: number, text: string) => void} */
  const setText = (offset, text) => [...text].forEach((letter, i) => view.setUint8(offset + i, letter.charCodeAt(0)));
  setText(0, "RIFF");
  view.setUint32(4, HEADER_BYTES - 8 + dataBytes, true);
  setText(8, "WAVEfmt ");
  view.setUint32(16, 16, true); // bytes of the format
  view.setUint16(20, 1, true); // PCM
  view.setUint16(22, 1, true); // channels
  view.setUint32(24, rate, true);
  view.setUint32(28, rate * BYTES_PER_SAMPLE, true);
  view.setUint16(32, BYTES_PER_SAMPLE, true); // of a sample of all channels
  view.setUint16(34, 8 * BYTES_PER_SAMPLE, true);
  setText(36, "data");
  view.setUint32(40, dataBytes, true);
  return view.buffer;
}

/** @param {Int16Array} samples */
function toLittleEndian(samples) {
  const view = new DataView(new ArrayBuffer(BYTES_PER_SAMPLE * samples.length));
  samples.forEach((sample, i) => view.setInt16(BYTES_PER_SAMPLE * i, sample, true));
  return view.buffer;
}
