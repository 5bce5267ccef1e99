/** The exact network as it is in its file (docs/format.md): a length, that much JSON, then the bytes of the tensors. */

import { byCodePoints, parseTree, sortedText } from "./json.js";
import { sha256 } from "./sha256.js";

/**
 * @typedef {Uint8Array | Int16Array | Int32Array | Float64Array} Values
 * @typedef {{dtype: string, shape: number[], values: Values}} Tensor
 * @typedef {{header: any, tensors: Map<string, Tensor>, sha256: string}} NetworkFile
 */

const TYPES = { U8: Uint8Array, I16: Int16Array, I32: Int32Array, F64: Float64Array };

/**
 * The header and the tensors. Error if the content does not have the hash that the header states.
 *
 * What else docs/format.md demands was checked when the page was made, and `linfdist verify` checks it again.
 * @param {Uint8Array} bytes
 * @returns {NetworkFile}
 */
export function readNetworkFile(bytes) {
  const encoder = new TextEncoder();
  const start = 8 + new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true);
  const outer = parseTree(new TextDecoder().decode(bytes.subarray(8, start)));
  const { __metadata__: metadata, ...entries } = outer.value;
  const inner = parseTree(metadata.linfdist);
  const { sha256: stated, ...header } = inner.value;
  inner.members?.delete("sha256");

  /** @type {Map<string, Tensor>} */
  const tensors = new Map();
  const pieces = [encoder.encode(sortedText(inner))];
  for (const name of Object.keys(entries).sort(byCodePoints)) {
    const { dtype, shape, data_offsets: [begin, end] } = entries[name];
    const own = bytes.slice(start + begin, start + end); // a copy, since views of words must be aligned
    const View = TYPES[/** @type {keyof typeof TYPES} */ (dtype)];
    tensors.set(name, { dtype, shape, values: new View(own.buffer) });
    pieces.push(encoder.encode(`["${name}", "${dtype}", [${shape.join(", ")}]]`), own);
  }
  const found = sha256(...pieces);
  if (found !== stated) throw new Error(`the network is damaged: its sha256 is ${found}, its header states ${stated}`);
  return { header, tensors, sha256: found };
}
