/**
 * A live attack: it looks for an image of another class, first inside the proved radius, where there is none, then
 * outside. It is a generator, so that the page can run it in small slices and stop it at any time.
 */

/**
 * @typedef {import("./network.js").Network} Network
 * @typedef {{phase: "inside" | "outside", levels: number, tried: number, found: Found | null}} Progress
 *   levels: the radius that is searched; tried: images so far in this phase
 * @typedef {{image: Uint8Array, best: number, levels: number}} Found   levels: its distance, the largest change of a pixel
 */

const STEPS = 16; // of gradient ascent from one start
const RIVALS = 3; // the classes it tries to reach
const STARTS = 3; // for each of them
const DOUBLINGS = [3, 4, 5, 7]; // exponents 8 … 128 in place of ∞, from the broad view to the sharp one

/**
 * Yields after every image it has tried; its last word is returned.
 * @param {Network} network
 * @param {Uint8Array} image
 * @param {number} best      its class
 * @param {number} proved    levels
 * @returns {Generator<Progress, Progress>}
 */
export function* attack(network, image, best, proved) {
  const random = generator(1);
  /** @type {Progress} */
  const progress = { phase: "inside", levels: proved, tried: 0, found: null };
  if (proved > 0 && (yield* search(network, image, best, proved, 2, random, progress))) return progress;

  Object.assign(progress, { phase: "outside", tried: 0 });
  let failed = proved;
  while (!progress.found && failed < 255) {
    progress.levels = Math.min(255, failed + Math.max(1, Math.round(0.2 * failed)));
    if (!(yield* search(network, image, best, progress.levels, 1, random, progress))) failed = progress.levels;
  }
  while (progress.found && progress.found.levels - failed > 1) {
    progress.levels = (failed + progress.found.levels) >> 1;
    if (!(yield* search(network, image, best, progress.levels, 1, random, progress))) failed = progress.levels;
  }
  return progress;
}

/**
 * Search the ball of `progress.levels`; whether an image of another class was found.
 * @param {Network} network
 * @param {Uint8Array} image
 * @param {number} best
 * @param {number} levels
 * @param {number} rounds
 * @param {() => number} random
 * @param {Progress} progress
 * @returns {Generator<Progress, boolean>}
 */
function* search(network, image, best, levels, rounds, random, progress) {
  const least = image.map((pixel, i) => Math.max(pixel - levels, network.lower[i]));
  const most = image.map((pixel, i) => Math.min(pixel + levels, network.upper[i]));
  const rivals = ranking(network.run(image).logits).filter((c) => c !== best).slice(0, RIVALS);
  for (let start = 0; start < STARTS * rounds; start++) {
    for (const rival of rivals) {
      const way = new Float64Array(network.classes);
      way[best] = -1;
      way[rival] = 1;
      const x = start === 0 ? image.slice() : image.map((_, i) => least[i] + random() * (most[i] - least[i] + 1));
      for (let step = 0; step < STEPS; step++) {
        const run = network.run(x), stride = Math.max(1, Math.round((levels * (STEPS - step)) / STEPS / 2));
        progress.tried++;
        if (run.best !== best) {
          const far = x.reduce((size, pixel, i) => Math.max(size, Math.abs(pixel - image[i])), 0);
          progress.found = { image: x, best: run.best, levels: far };
          yield progress;
          return true;
        }
        yield progress;
        const gradient = network.gradient(run, way, DOUBLINGS[Math.floor((step * DOUBLINGS.length) / STEPS)]);
        for (let i = 0; i < x.length; i++) {
          x[i] = Math.min(Math.max(x[i] + stride * Math.sign(gradient[i]), least[i]), most[i]);
        }
      }
    }
  }
  return false;
}

/**
 * An image at the edge of the ball, every pixel moved by `levels` as far as it goes, in one direction each.
 * @param {Network} network
 * @param {Uint8Array} image
 * @param {number} levels
 * @param {ArrayLike<number>} direction   1 or −1 for each pixel
 * @returns {Uint8Array}
 */
export function atTheEdge(network, image, levels, direction) {
  return image.map((pixel, i) => Math.min(Math.max(pixel + levels * direction[i], network.lower[i]), network.upper[i]));
}

/**
 * For each pixel the direction, 1 or −1, that favours a class over the best one; noise where it does not matter.
 * @param {Network} network
 * @param {import("./network.js").Run} run
 * @param {number} rival
 * @returns {Int8Array}
 */
export function towards(network, run, rival) {
  const way = new Float64Array(network.classes);
  way[run.best] = -1;
  way[rival] = 1;
  const gradient = network.gradient(run, way, DOUBLINGS[1]), rest = noise(gradient.length);
  return Int8Array.from(gradient, (slope, i) => Math.sign(slope) || rest[i]);
}

/** 1 or −1 for each pixel, the same ones each time. @param {number} size @returns {Int8Array} */
export function noise(size) {
  const random = generator(2);
  return Int8Array.from({ length: size }, () => (random() < 0.5 ? -1 : 1));
}

/** Classes by descending logit. @param {ArrayLike<number>} logits @returns {number[]} */
export function ranking(logits) {
  return Array.from(logits, (_, c) => c).sort((a, b) => logits[b] - logits[a] || a - b);
}

/** Numbers from 0 up to 1, the same ones for the same seed (mulberry32). @param {number} seed @returns {() => number} */
function generator(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}
