/** The float64 head of a network that has one: z = w2 tanh(w1 n + b1) + b2 of the features n, whole numbers. */

const ROUNDING = 2 ** -50, UNDERFLOW = 1e-200, TANH = 2 ** -48;
const CAUTION = 2; // times the slack that `linfdist verify` demands, which sums in another order

export class Head {
  /**
   * @param {Float64Array} w1   (hidden, features)
   * @param {Float64Array} b1
   * @param {Float64Array} w2   (classes, hidden)
   * @param {Float64Array} b2
   */
  constructor(w1, b1, w2, b2) {
    this.w1 = w1;
    this.b1 = b1;
    this.w2 = w2;
    this.b2 = b2;
    this.features = w1.length / b1.length;
  }

  /** @param {Int32Array} n @returns {Float64Array} the hidden neurons, after the tanh */
  hidden(n) {
    const { w1, b1, features } = this;
    return b1.map((bias, h) => {
      let sum = 0;
      for (let i = 0; i < features; i++) sum += w1[h * features + i] * n[i];
      return Math.tanh(sum + bias);
    });
  }

  /** @param {Int32Array} n @returns {Float64Array} the logits; their last bits depend on the order of summation */
  forward(n) {
    const { w2, b2 } = this, t = this.hidden(n);
    return b2.map((bias, c) => {
      let sum = 0;
      for (let h = 0; h < t.length; h++) sum += w2[c * t.length + h] * t[h];
      return sum + bias;
    });
  }

  /**
   * Whether class `best` has the largest logit for all features of the box, in whatever order float64 sums are executed:
   * docs/exact.md has the bound. Twice the slack that `linfdist verify` demands.
   * @param {import("./stages.js").Box} box
   * @param {number} best
   * @returns {boolean}
   */
  holds({ low, high }, best) {
    const { w1, b1, w2, b2, features } = this, hidden = b1.length;
    const middle = new Float64Array(hidden), reach = new Float64Array(hidden);
    for (let h = 0; h < hidden; h++) {
      let centre = 0, radius = 0, size = 0;
      for (let i = 0; i < features; i++) {
        const w = w1[h * features + i], steep = Math.abs(w);
        centre += (w * (low[i] + high[i])) / 2;
        radius += (steep * (high[i] - low[i])) / 2;
        size += steep * Math.max(Math.abs(low[i]), Math.abs(high[i]));
      }
      radius += CAUTION * lost(size + Math.abs(b1[h]), features);
      const least = Math.tanh(centre + b1[h] - radius) - CAUTION * TANH;
      const most = Math.tanh(centre + b1[h] + radius) + CAUTION * TANH;
      middle[h] = (least + most) / 2;
      reach[h] = (most - least) / 2;
    }
    const slack = b2.map((bias, c) => {
      let size = Math.abs(bias);
      for (let h = 0; h < hidden; h++) size += Math.abs(w2[c * hidden + h]);
      return CAUTION * lost(size, hidden);
    });
    return b2.every((_, c) => {
      if (c === best) return true;
      let lead = 0;
      for (let h = 0; h < hidden; h++) {
        const w = w2[best * hidden + h] - w2[c * hidden + h];
        lead += w * middle[h] - Math.abs(w) * reach[h];
      }
      return lead + (b2[best] - b2[c] - slack[best] - slack[c]) > 0;
    });
  }

  /**
   * The gradient with respect to the features of a weighted sum of the logits.
   * @param {Float64Array} gradient   the weights
   * @param {Int32Array} n
   * @returns {Float64Array}
   */
  pull(gradient, n) {
    const { w1, w2, features } = this, t = this.hidden(n), pulled = new Float64Array(features);
    for (let h = 0; h < t.length; h++) {
      let sum = 0;
      for (let c = 0; c < gradient.length; c++) sum += gradient[c] * w2[c * t.length + h];
      sum *= 1 - t[h] * t[h];
      for (let i = 0; i < features; i++) pulled[i] += sum * w1[h * features + i];
    }
    return pulled;
  }
}

/**
 * What a sum of that many products and a bias can lose in float64; `size` is the sum of the magnitudes of its terms.
 * @param {number} size
 * @param {number} terms
 * @returns {number}
 */
function lost(size, terms) {
  return (terms + 16) * (ROUNDING * size + UNDERFLOW);
}
