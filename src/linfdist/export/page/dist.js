/** A layer of ℓ∞ distances in integers: y[o] = max over the kept i of |x[i] − w[o, i]|, plus b[o]. A `Stage`. */

/** @typedef {import("./stages.js").Box} Box */

export class Dist {
  /**
   * @param {Uint8Array} mask                  a bit an entry, row by row, each row in whole bytes
   * @param {Int16Array | Int32Array} weights  of the kept entries, row by row
   * @param {Int32Array} bias
   * @param {number} inputs
   */
  constructor(mask, weights, bias, inputs) {
    const row = Math.ceil(inputs / 8);
    this.inputs = inputs;
    this.outputs = bias.length;
    this.bias = bias;
    this.weight = weights;
    /** Entries of neuron o are start[o] … start[o + 1] − 1. */
    this.start = new Int32Array(bias.length + 1);
    /** The input that each entry looks at. */
    this.index = new Int32Array(weights.length);
    let kept = 0;
    for (let o = 0; o < bias.length; o++) {
      for (let i = 0; i < inputs; i++) {
        if ((mask[o * row + (i >> 3)] >> (7 - (i & 7))) & 1) this.index[kept++] = i;
      }
      this.start[o + 1] = kept;
    }
    if (kept !== weights.length) throw new Error(`a layer has ${weights.length} weights for ${kept} entries`);
  }

  /** @param {Int32Array} x @returns {Int32Array} */
  forward(x) {
    const { start, index, weight, bias } = this, y = new Int32Array(bias.length);
    for (let o = 0; o < bias.length; o++) {
      let most = 0;
      for (let e = start[o], end = start[o + 1]; e < end; e++) {
        const d = x[index[e]] - weight[e], size = d < 0 ? -d : d;
        if (size > most) most = size;
      }
      y[o] = most + bias[o];
    }
    return y;
  }

  /**
   * The least and the largest outputs for all low ≤ x ≤ high.
   * @param {Box} box
   * @returns {Box}
   */
  bounds({ low, high }) {
    const { start, index, weight, bias } = this;
    const least = new Int32Array(bias.length), most = new Int32Array(bias.length);
    for (let o = 0; o < bias.length; o++) {
      let floor = 0, top = 0;
      for (let e = start[o], end = start[o + 1]; e < end; e++) {
        const i = index[e], w = weight[e], above = low[i] - w, below = w - high[i];
        const near = above > below ? above : below, far = above > below ? -below : -above;
        if (near > floor) floor = near;
        if (far > top) top = far;
      }
      least[o] = floor + bias[o];
      most[o] = top + bias[o];
    }
    return { low: least, high: most };
  }

  /**
   * Marks the inputs that can decide one of the wanted outputs somewhere in the box: |x − w| of any other entry never
   * exceeds what another one has everywhere. In a box of one point, that is the first arg-max alone.
   * @param {Uint8Array} wanted   (outputs)
   * @param {Box} box             of the inputs
   * @returns {Uint8Array}        (inputs)
   */
  deciders(wanted, { low, high }) {
    const { start, index, weight } = this, found = new Uint8Array(this.inputs);
    for (let o = 0; o < wanted.length; o++) {
      if (!wanted[o]) continue;
      let floor = -1, holder = 0;
      for (let e = start[o]; e < start[o + 1]; e++) {
        const near = Math.max(low[index[e]] - weight[e], weight[e] - high[index[e]], 0);
        if (near > floor) [floor, holder] = [near, index[e]];
      }
      found[holder] = 1;
      for (let e = start[o]; e < start[o + 1]; e++) {
        if (Math.max(high[index[e]] - weight[e], weight[e] - low[index[e]]) > floor) found[index[e]] = 1;
      }
    }
    return found;
  }

  /**
   * The gradient with respect to the inputs, of the distance with exponent p = 2^doublings in place of ∞: it is not 0
   * almost everywhere, and shows an attack the way.
   * @param {Float64Array} gradient   with respect to the outputs
   * @param {Int32Array} x
   * @param {number} doublings
   * @returns {Float64Array}
   */
  pull(gradient, x, doublings) {
    const { start, index, weight } = this, pulled = new Float64Array(this.inputs), p = 2 ** doublings;
    for (let o = 0; o < gradient.length; o++) {
      if (gradient[o] === 0) continue;
      let most = 0;
      for (let e = start[o]; e < start[o + 1]; e++) most = Math.max(most, Math.abs(x[index[e]] - weight[e]));
      if (most === 0) continue;
      let sum = 0;
      for (let e = start[o]; e < start[o + 1]; e++) sum += power((x[index[e]] - weight[e]) / most, doublings);
      const scale = gradient[o] / sum ** ((p - 1) / p);
      for (let e = start[o]; e < start[o + 1]; e++) {
        const ratio = (x[index[e]] - weight[e]) / most;
        if (ratio !== 0) pulled[index[e]] += (scale * power(ratio, doublings)) / ratio;
      }
    }
    return pulled;
  }
}

/** x to the power of 2^doublings. @param {number} x @param {number} doublings @returns {number} */
function power(x, doublings) {
  for (let n = 0; n < doublings; n++) x *= x;
  return x;
}
