/**
 * What an image goes through: each stage turns a vector of integers into another, and their ranges into ranges.
 * Distances are in dist.js; the stages here are monotone, so ends go to ends.
 */

import { Dist } from "./dist.js";

/**
 * @typedef {{low: Int32Array, high: Int32Array}} Box   the least and the largest value of each entry of a vector
 *
 * @typedef {object} Stage
 * @property {number} inputs
 * @property {number} outputs
 * @property {(x: Int32Array) => Int32Array} forward
 * @property {(box: Box) => Box} bounds   over all low ≤ x ≤ high
 * @property {(wanted: Uint8Array, box: Box) => Uint8Array} deciders
 *   marks the inputs that have a say in the wanted outputs somewhere in the box
 * @property {(gradient: Float64Array, x: Int32Array, doublings: number) => Float64Array} pull
 *   the gradient with respect to the inputs, smoothed where it would be 0 almost everywhere
 */

/** Sums of some inputs each, times a whole number: y[o] = factor[o] · Σ x[i]. A crop, a pool and class sums are such. @implements {Stage} */
export class Sums {
  /**
   * @param {number} inputs
   * @param {number[][]} members   for each output its inputs
   * @param {number[]} factor
   */
  constructor(inputs, members, factor) {
    this.inputs = inputs;
    this.outputs = members.length;
    this.factor = factor;
    this.start = new Int32Array(members.length + 1);
    members.forEach((each, o) => (this.start[o + 1] = this.start[o] + each.length));
    this.index = Int32Array.from(members.flat());
  }

  /** @param {Int32Array} x @returns {Int32Array} */
  forward(x) {
    const { start, index, factor } = this, y = new Int32Array(this.outputs);
    for (let o = 0; o < y.length; o++) {
      let sum = 0;
      for (let e = start[o]; e < start[o + 1]; e++) sum += x[index[e]];
      y[o] = factor[o] * sum;
    }
    return y;
  }

  /** @param {Box} box @returns {Box} */
  bounds({ low, high }) {
    return { low: this.forward(low), high: this.forward(high) };
  }

  /** @param {Uint8Array} wanted @returns {Uint8Array} */
  deciders(wanted) {
    const { start, index } = this, found = new Uint8Array(this.inputs);
    for (let o = 0; o < wanted.length; o++) {
      if (wanted[o]) for (let e = start[o]; e < start[o + 1]; e++) found[index[e]] = 1;
    }
    return found;
  }

  /** @param {Float64Array} gradient @returns {Float64Array} */
  pull(gradient) {
    const { start, index, factor } = this, pulled = new Float64Array(this.inputs);
    for (let o = 0; o < gradient.length; o++) {
      for (let e = start[o]; e < start[o + 1]; e++) pulled[index[e]] += factor[o] * gradient[o];
    }
    return pulled;
  }
}

/** y = min(max(x, low), high). @implements {Stage} */
export class Clip {
  /** @param {number} size @param {number} low @param {number} high */
  constructor(size, low, high) {
    this.inputs = this.outputs = size;
    this.low = low;
    this.high = high;
  }

  /** @param {Int32Array} x @returns {Int32Array} */
  forward(x) {
    return x.map((value) => Math.min(Math.max(value, this.low), this.high));
  }

  /** @param {Box} box @returns {Box} */
  bounds({ low, high }) {
    return { low: this.forward(low), high: this.forward(high) };
  }

  /** @param {Uint8Array} wanted @returns {Uint8Array} */
  deciders(wanted) {
    return wanted;
  }

  /** Pixels that are clipped are told the way too: enough of a change brings them back. @param {Float64Array} gradient */
  pull(gradient) {
    return gradient;
  }
}

/**
 * The stages of a network.
 * @param {any} header
 * @param {(name: string) => any} values   of a tensor
 * @returns {Stage[]}
 */
export function stagesOf(header, values) {
  let [channels, height, width] = header.shape, layers = 0;
  /** @type {Stage[]} */
  const stages = [];
  for (const each of header.stages ?? firstForm(header)) {
    const inputs = stages.length ? stages[stages.length - 1].outputs : channels * height * width;
    if (each.kind === "crop") {
      stages.push(crop(channels, height, width, each.side));
      height = width = each.side;
    } else if (each.kind === "clip") {
      stages.push(new Clip(inputs, each.low, each.high));
    } else if (each.kind === "pool") {
      stages.push(pool(channels, height, width, each.sizes, each.steps));
    } else if (each.kind === "dist") {
      const l = layers++;
      stages.push(new Dist(values(`${l}.mask`), values(`${l}.weight`), values(`${l}.bias`), each.inputs));
    } else if (each.kind === "sum") {
      const members = range(inputs / each.count).map((c) => range(each.count).map((j) => c * each.count + j));
      stages.push(new Sums(inputs, members, members.map(() => 1)));
    } else if (each.kind !== "head") {
      throw new Error(`the network has a stage that this page does not know: ${JSON.stringify(each.kind)}`);
    }
  }
  return stages;
}

/**
 * How many grid units a logit can move if no pixel moves by more than a level.
 * @param {any} header
 * @returns {number}
 */
export function stepsOf(header) {
  const factors = (header.stages ?? []).map((/** @type {any} */ each) => each.steps ?? each.count ?? 1);
  return factors.reduce((/** @type {number} */ all, /** @type {number} */ each) => all * each, 2 ** header.k);
}

/** The stages of a file whose header names layers only. @param {any} header @returns {any[]} */
function firstForm(header) {
  const layers = header.layers.map((/** @type {any} */ sizes) => ({ kind: "dist", ...sizes }));
  return header.crop === null ? layers : [{ kind: "crop", side: header.crop }, ...layers];
}

/** @param {number} channels @param {number} height @param {number} width @param {number} side @returns {Sums} */
function crop(channels, height, width, side) {
  const top = (height - side) >> 1, left = (width - side) >> 1;
  const members = range(channels * side * side).map((o) => {
    const channel = Math.floor(o / (side * side)), row = Math.floor(o / side) % side;
    return [(channel * height + top + row) * width + left + (o % side)];
  });
  return new Sums(channels * height * width, members, members.map(() => 1));
}

/**
 * @param {number} channels
 * @param {number} height
 * @param {number} width
 * @param {number[]} sizes
 * @param {number} steps
 * @returns {Sums}
 */
function pool(channels, height, width, sizes, steps) {
  /** @type {number[][]} */
  const members = [];
  /** @type {number[]} */
  const factor = [];
  for (const s of sizes) {
    const rows = Math.floor(height / s), columns = Math.floor(width / s);
    for (const o of range(channels * rows * columns)) {
      const channel = Math.floor(o / (rows * columns)), row = Math.floor(o / columns) % rows;
      const first = (channel * height + row * s) * width + (o % columns) * s;
      members.push(range(s * s).map((j) => first + Math.floor(j / s) * width + (j % s)));
      factor.push(steps / (s * s));
    }
  }
  return new Sums(channels * height * width, members, factor);
}

/** @param {number} count @returns {number[]} */
function range(count) {
  return Array.from({ length: count }, (_, i) => i);
}
