/** The network: 8-bit pixels in, integers all the way, the same ones as everywhere else that it runs. */

import { readNetworkFile } from "./file.js";
import { Head } from "./head.js";
import { stagesOf, stepsOf } from "./stages.js";

/**
 * @typedef {import("./stages.js").Box} Box
 * @typedef {{values: Int32Array[], logits: Int32Array | Float64Array, best: number}} Run
 *   values: the input of each stage, and the outputs of the last; best: the class
 */

export class Network {
  /** @param {Uint8Array} bytes   of the file that `linfdist verify` takes */
  constructor(bytes) {
    const { header, tensors, sha256 } = readNetworkFile(bytes);
    /** @param {string} name @returns {any} */
    const values = (name) => {
      const found = tensors.get(name);
      if (!found) throw new Error(`the network has no tensor ${name}`);
      return found.values;
    };
    this.bytes = bytes;
    this.sha256 = sha256;
    this.facts = header.facts;
    /** @type {number} */
    this.k = header.k;
    /** One level of the pixels moves no logit by more than this; with a head, no feature. */
    this.steps = stepsOf(header);
    /** @type {[number, number, number]} */
    this.shape = header.shape;
    /** @type {Uint8Array} */
    this.lower = values("lower");
    /** @type {Uint8Array} */
    this.upper = values("upper");
    this.wholeCube = this.lower.every((least) => least === 0) && this.upper.every((most) => most === 255);
    this.stages = stagesOf(header, values);
    this.head = tensors.has("head.w1")
      ? new Head(values("head.w1"), values("head.b1"), values("head.w2"), values("head.b2"))
      : null;
    this.classes = this.head ? this.head.b2.length : this.stages[this.stages.length - 1].outputs;
  }

  /** Whether the image is one that the network was made for. @param {Uint8Array} image @returns {boolean} */
  inside(image) {
    return image.every((pixel, i) => this.lower[i] <= pixel && pixel <= this.upper[i]);
  }

  /** @param {Uint8Array} image @returns {Run} */
  run(image) {
    /** @type {Int32Array} */
    let x = Int32Array.from(image, (pixel) => pixel << this.k);
    const values = [x];
    for (const stage of this.stages) values.push((x = stage.forward(x)));
    const logits = this.head ? this.head.forward(x) : x.map((y) => -y);
    return { values, logits, best: firstLargest(logits) };
  }

  /**
   * The ranges of the inputs of each stage, and of the outputs of the last, over all images of the domain whose pixels
   * differ from those of `image` by at most `levels`.
   * @param {Uint8Array} image
   * @param {number} levels
   * @returns {Box[]}
   */
  boxes(image, levels) {
    const { k, lower, upper } = this;
    /** @type {Box} */
    let box = {
      low: Int32Array.from(image, (pixel, i) => Math.max(pixel - levels, lower[i]) << k),
      high: Int32Array.from(image, (pixel, i) => Math.min(pixel + levels, upper[i]) << k),
    };
    const found = [box];
    for (const stage of this.stages) found.push((box = stage.bounds(box)));
    return found;
  }

  /**
   * Whether ranges prove that all images of the domain within `levels` of this one have the class `best`.
   * @param {Uint8Array} image
   * @param {number} best
   * @param {number} levels
   * @returns {boolean}
   */
  proves(image, best, levels) {
    const box = this.boxes(image, levels)[this.stages.length];
    if (this.head) return this.head.holds(box, best);
    return box.low.every((least, c) => c === best || least > box.high[best]); // logits are −y
  }

  /**
   * The gradient of a weighted sum of the logits with respect to the pixels, smoothed so that it is not 0 almost
   * everywhere: distances have the exponent 2^doublings in place of ∞.
   * @param {Run} run
   * @param {Float64Array} weights   of the logits
   * @param {number} doublings
   * @returns {Float64Array}
   */
  gradient(run, weights, doublings) {
    let pulled = this.head
      ? this.head.pull(weights, run.values[this.stages.length])
      : weights.map((weight) => -weight);
    for (let l = this.stages.length - 1; l >= 0; l--) pulled = this.stages[l].pull(pulled, run.values[l], doublings);
    return pulled;
  }
}

/** The place of the largest value, the first if there are several. @param {ArrayLike<number>} values @returns {number} */
export function firstLargest(values) {
  let best = 0;
  for (let i = 1; i < values.length; i++) if (values[i] > values[best]) best = i;
  return best;
}
