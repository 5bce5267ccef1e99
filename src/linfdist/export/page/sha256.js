/**
 * SHA-256 (FIPS 180-4). A page that was opened as a file is no secure context in some browsers, and those have no
 * crypto.subtle there.
 */

const PRIMES = firstPrimes(64);
const ROUND = Uint32Array.from(PRIMES, (prime) => fractionBits(Math.cbrt(prime)));
const START = Uint32Array.from(PRIMES.slice(0, 8), (prime) => fractionBits(Math.sqrt(prime)));

/** @param {number} count @returns {number[]} */
function firstPrimes(count) {
  /** @type {number[]} */
  const found = [];
  for (let n = 2; found.length < count; n++) if (found.every((prime) => n % prime)) found.push(n);
  return found;
}

/** The first 32 bits after the point. @param {number} x @returns {number} */
function fractionBits(x) {
  return Math.floor((x - Math.floor(x)) * 2 ** 32);
}

/**
 * The hash of some pieces of bytes, one after the other, in hexadecimal digits.
 * @param {...Uint8Array} pieces
 * @returns {string}
 */
export function sha256(...pieces) {
  const length = pieces.reduce((sum, piece) => sum + piece.length, 0);
  const padded = new Uint8Array(Math.ceil((length + 9) / 64) * 64);
  let at = 0;
  for (const piece of pieces) {
    padded.set(piece, at);
    at += piece.length;
  }
  padded[length] = 0x80;
  const words = new DataView(padded.buffer);
  words.setUint32(padded.length - 8, Math.floor(length / 2 ** 29));
  words.setUint32(padded.length - 4, (length << 3) >>> 0);

  const state = START.slice(), w = new Uint32Array(64);
  for (let block = 0; block < padded.length; block += 64) {
    for (let t = 0; t < 16; t++) w[t] = words.getUint32(block + 4 * t);
    for (let t = 16; t < 64; t++) {
      const x = w[t - 15], y = w[t - 2];
      const small = ((x >>> 7) | (x << 25)) ^ ((x >>> 18) | (x << 14)) ^ (x >>> 3);
      const large = ((y >>> 17) | (y << 15)) ^ ((y >>> 19) | (y << 13)) ^ (y >>> 10);
      w[t] = w[t - 16] + small + w[t - 7] + large;
    }
    let [a, b, c, d, e, f, g, h] = state;
    for (let t = 0; t < 64; t++) {
      const s1 = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7));
      const s0 = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10));
      const t1 = (h + s1 + ((e & f) ^ (~e & g)) + ROUND[t] + w[t]) | 0;
      const t2 = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
      [h, g, f, e, d, c, b, a] = [g, f, e, (d + t1) | 0, c, b, a, (t1 + t2) | 0];
    }
    [a, b, c, d, e, f, g, h].forEach((value, i) => (state[i] += value));
  }
  return Array.from(state, (word) => word.toString(16).padStart(8, "0")).join("");
}
