// Collects the samples of a microphone in the browser's audio thread, mixed to one channel.

const CHUNK_SAMPLES = 2048; // that are sent to the page at once
const { AudioWorkletProcessor, registerProcessor } = /** @type {any} */ (globalThis); // not known in a window

class Recorder extends AudioWorkletProcessor {
  constructor() {
    super();
    this.chunk = new Float32Array(CHUNK_SAMPLES);
    this.filled = 0;
    this.isRunning = true;
    this.port.onmessage = () => this.finish(); // the only message is to stop
  }

  /**
   * Receive 128 samples of each channel.
   * @param {Float32Array[][]} inputs
   * @returns {boolean} whether there will be more
   */
  process([channels = []]) {
    const length = channels[0]?.length ?? 0;
    for (let i = 0; i < length && this.isRunning; i++) {
      this.chunk[this.filled++] = channels.reduce((sum, channel) => sum + (channel[i] ?? 0), 0) / channels.length;
      if (this.filled === CHUNK_SAMPLES) this.send();
    }
    return this.isRunning;
  }

  send() {
    this.port.postMessage(this.chunk.slice(0, this.filled));
    this.filled = 0;
  }

  /** Send what is left, then null. */
  finish() {
    this.isRunning = false;
    this.send();
    this.port.postMessage(null);
  }
}

registerProcessor("recorder", Recorder);
