/**
 * Why this class: a maximum is decided by one of its terms, so every logit hangs on a path of neurons, down to the
 * pixels. The pixels that come into play only after the image has changed are found by the same ranges that prove it.
 */

import { Dist } from "./dist.js";
import { Sums } from "./stages.js";

/**
 * @typedef {import("./network.js").Network} Network
 * @typedef {import("./network.js").Run} Run
 * @typedef {{stage: number, neuron: number, of: number, value: number}} Step
 *   stage: 0 for pixels, else the number of the stage that gives the value; of: how many entries could have decided
 */

const NONE = 255;
const SPREADS = [0, 1, 2, 4, 8, 16, 32, 64, 128]; // levels

/**
 * For each value of the image the levels by which pixels must be free to change before it has a say in one of these
 * classes, of those that were looked at: 0 for what decides now, 255 for what was in play nowhere.
 * @param {Network} network
 * @param {Uint8Array} image
 * @param {Run} run
 * @param {number[]} classes
 * @param {number} most   levels, the widest of those that are looked at
 * @returns {Uint8Array}
 */
export function comesIntoPlay(network, image, run, classes, most) {
  const found = new Uint8Array(image.length).fill(NONE);
  for (const levels of [...SPREADS.filter((each) => each < most), most]) {
    const boxes = network.boxes(image, levels);
    let wanted = outputs(network, run, classes);
    for (let l = network.stages.length - 1; l >= 0; l--) wanted = network.stages[l].deciders(wanted, boxes[l]);
    wanted.forEach((say, i) => {
      if (say && found[i] === NONE) found[i] = levels;
    });
  }
  return found;
}

/**
 * The outputs of the last stage that make these logits: themselves, or with a head, the features that weigh most.
 * @param {Network} network
 * @param {Run} run
 * @param {number[]} classes
 * @returns {Uint8Array}
 */
function outputs(network, run, classes) {
  const last = run.values[network.stages.length], wanted = new Uint8Array(last.length);
  for (const c of network.head ? heaviest(network, run, classes) : classes) wanted[c] = 1;
  return wanted;
}

/** With a head: the eight features with the steepest slope. @param {Network} network @param {Run} run @param {number[]} classes */
function heaviest(network, run, classes) {
  const way = new Float64Array(network.classes);
  classes.forEach((c, i) => (way[c] = i === 0 ? 1 : -1));
  const slopes = network.head?.pull(way, run.values[network.stages.length]) ?? new Float64Array(0);
  return Array.from(slopes, (_, i) => i).sort((a, b) => Math.abs(slopes[b]) - Math.abs(slopes[a])).slice(0, 8);
}

/**
 * The path that decides a class, from the class down to one pixel: in each layer the first entry that attains the
 * maximum; of a sum, the largest term.
 * @param {Network} network
 * @param {Run} run
 * @param {number} chosen   the class
 * @returns {Step[]}
 */
export function pathOf(network, run, chosen) {
  const steps = [];
  let neuron = network.head ? heaviest(network, run, [chosen])[0] : chosen;
  for (let l = network.stages.length; l > 0; l--) {
    const stage = network.stages[l - 1], x = run.values[l - 1];
    const entries = stage instanceof Dist || stage instanceof Sums ? stage.start[neuron + 1] - stage.start[neuron] : 1;
    steps.push({ stage: l, neuron, of: entries, value: run.values[l][neuron] });
    if (stage instanceof Dist) neuron = stage.deciders(only(neuron, stage.outputs), { low: x, high: x }).indexOf(1);
    else if (stage instanceof Sums) neuron = largest(stage.index.subarray(stage.start[neuron], stage.start[neuron + 1]), x);
  }
  steps.push({ stage: 0, neuron, of: 1, value: run.values[0][neuron] });
  return steps;
}

/** A mark for one entry. @param {number} place @param {number} size @returns {Uint8Array} */
function only(place, size) {
  const marks = new Uint8Array(size);
  marks[place] = 1;
  return marks;
}

/** The first of these places with the largest value. @param {Int32Array} places @param {Int32Array} x @returns {number} */
function largest(places, x) {
  return places.reduce((best, each) => (x[each] > x[best] ? each : best), places[0]);
}
