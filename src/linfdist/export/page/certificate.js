/** Certificates: what is proved about one image, in the form that `linfdist verify` takes; and their check. */

import { isSame, parseTree } from "./json.js";
import { sha256 } from "./sha256.js";

/**
 * @typedef {import("./network.js").Network} Network
 * @typedef {import("./network.js").Run} Run
 * @typedef {{best: number, margin: number | null, levels: number}} Proof
 *   levels: all images of the domain whose pixels differ by at most that many have class `best`
 */

/**
 * What the network proves about an image that it has run on; null where the order of float64 sums in a head could
 * decide the class.
 * @param {Network} network
 * @param {Uint8Array} image
 * @param {Run} run
 * @returns {Proof | null}
 */
export function prove(network, image, run) {
  const { best } = run, margin = network.head ? null : marginOf(run.logits, best);
  let proved = marginLevels(margin ?? 0, network.steps), failed = 256;
  if (network.head && !network.proves(image, best, 0)) return null;
  for (let stride = 1; proved + 1 < failed; stride *= 2) {
    // boxes rarely prove much more than the margin: large steps only after small ones have succeeded
    const next = failed < 256 ? (proved + failed) >> 1 : Math.min(proved + stride, 255);
    if (network.proves(image, best, next)) proved = next;
    else failed = next;
  }
  return { best, margin, levels: proved };
}

/** The best logit less the best of the others. @param {ArrayLike<number>} logits @param {number} best @returns {number} */
function marginOf(logits, best) {
  let second = -Infinity;
  for (let c = 0; c < logits.length; c++) if (c !== best) second = Math.max(second, logits[c]);
  return logits[best] - second;
}

/**
 * The largest n with 2 n steps < margin, or 0: one level moves no logit by more than `steps`.
 * @param {number} margin
 * @param {number} steps
 * @returns {number}
 */
function marginLevels(margin, steps) {
  return Math.min(255, Math.floor(Math.max(0, margin - 1) / (2 * steps)));
}

/** @param {ArrayLike<number>} shape @param {...Uint8Array} pixels @returns {string} */
export function imageSha256(shape, ...pixels) {
  return sha256(new TextEncoder().encode(`${Array.from(shape).join(",")}:`), ...pixels);
}

/**
 * The certificate that states a proof.
 * @param {Network} network
 * @param {Uint8Array} image
 * @param {Proof} proof
 * @param {"box" | "margin"} [method]
 * @returns {Record<string, any>}
 */
export function certificateOf(network, image, proof, method = "box") {
  const { shape, steps } = network, { best, margin, levels } = proof;
  const domain = [2 * shape[0], shape[1], shape[2]];
  return {
    format: "linfdist-certificate-1",
    image_sha256: imageSha256(shape, image),
    image_shape: shape,
    model_sha256: network.sha256,
    class: best,
    grid: `1/${255 * steps} pixel`,
    margin,
    method,
    radius: method === "box" ? String(levels) : fraction(margin ?? 0, 2 * steps),
    ball: method === "box" ? "closed" : "open",
    levels: method === "box" ? levels : marginLevels(margin ?? 0, steps),
    domain_sha256: network.wholeCube ? null : imageSha256(domain, network.lower, network.upper),
  };
}

/** In lowest terms. @param {number} above @param {number} below @returns {string} */
function fraction(above, below) {
  let [divisor, rest] = [below, above];
  while (rest) [divisor, rest] = [rest, divisor % rest];
  return divisor === below ? String(above / divisor) : `${above / divisor}/${below / divisor}`;
}

/**
 * Compute the certificate of this image again, and compare. Error says where it differs.
 * @param {Network} network
 * @param {Uint8Array} image
 * @param {string} text   one certificate, or several, one per line
 * @returns {Record<string, any>}   the certificate that was found to be true
 */
export function checkCertificate(network, image, text) {
  const lines = text.trim().includes("\n{") ? text.trim().split("\n") : [text];
  let trees;
  try {
    trees = lines.map(parseTree);
  } catch (error) {
    throw new Error(`this file is not JSON that can be trusted (${/** @type {Error} */ (error).message})`);
  }
  const sum = imageSha256(network.shape, image);
  const about = trees.filter((tree) => tree.members?.get("image_sha256")?.node.value === sum);
  if (about.length !== 1) {
    const count = about.length === 0 ? "no certificate" : `${about.length} certificates`;
    throw new Error(`this file holds ${count} of the image that is shown: open that image first, or both together`);
  }
  const claim = about[0].members ?? new Map(), claimed = about[0].value;
  if (!network.inside(image)) throw new Error("the image is outside the network's domain");
  if (claimed.method !== "box" && (claimed.method !== "margin" || network.head)) {
    throw new Error(`its method is ${show(claimed.method)}, expected ${network.head ? "box" : "margin or box"}`);
  }
  const run = network.run(image), proof = prove(network, image, run);
  if (!proof) throw new Error("the two best logits are closer than rounding: this image has no certain class");
  if (network.head && Number.isInteger(claimed.levels) && claimed.levels >= 0 && claimed.levels < proof.levels) {
    proof.levels = claimed.levels; // with a head, less than could be proved is true all the same
  }
  const expected = certificateOf(network, image, proof, claimed.method);
  for (const [key, value] of Object.entries(expected)) {
    const own = claim.get(key)?.node;
    if (!own) throw new Error(`the certificate has no entry ${key}`);
    if (!isSame(own, value)) throw new Error(`${key}: the certificate says ${show(own.value)}, it is ${show(value)}`);
  }
  const unknown = [...claim.keys()].find((key) => !(key in expected));
  if (unknown !== undefined) throw new Error(`the certificate has an unknown entry ${show(unknown)}`);
  return expected;
}

/** A value for a message, cut where it is long. @param {any} value @returns {string} */
function show(value) {
  const text = JSON.stringify(value) ?? "missing";
  return text.length <= 80 ? text : `${text.slice(0, 77)}...`;
}

/** As Python's json.dumps writes it. @param {Record<string, any>} certificate @returns {string} */
export function certificateText(certificate) {
  const entries = Object.entries(certificate).map(([key, value]) => {
    const text = Array.isArray(value) ? `[${value.join(", ")}]` : JSON.stringify(value);
    return `${JSON.stringify(key)}: ${text}`;
  });
  return `{${entries.join(", ")}}\n`;
}
