/** PNG files with exactly the pixels of an image: a canvas may change some, in browsers that guard against fingerprints. */

/** @type {Uint32Array} */
const CRC = Uint32Array.from({ length: 256 }, (_, n) => {
  for (let bit = 0; bit < 8; bit++) n = n & 1 ? 0xedb88320 ^ (n >>> 1) : n >>> 1;
  return n;
});

/**
 * @param {ArrayLike<number>} shape   (C, H, W), C = 1 (gray) or 3 (RGB)
 * @param {Uint8Array} image
 * @returns {Uint8Array}
 */
export function encodePng(shape, image) {
  const [channels, height, width] = Array.from(shape), row = 1 + channels * width;
  const lines = new Uint8Array(height * row); // each line begins with 0, for no filter
  for (let i = 0; i < image.length; i++) {
    const channel = Math.floor(i / (height * width)), y = Math.floor(i / width) % height, x = i % width;
    lines[y * row + 1 + x * channels + channel] = image[i];
  }
  const header = new Uint8Array(13), view = new DataView(header.buffer);
  view.setUint32(0, width);
  view.setUint32(4, height);
  header.set([8, channels === 1 ? 0 : 2], 8);
  const signature = Uint8Array.of(0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a);
  return joined([signature, chunk("IHDR", header), chunk("IDAT", stored(lines)), chunk("IEND", new Uint8Array(0))]);
}

/** A zlib stream without compression. @param {Uint8Array} data @returns {Uint8Array} */
function stored(data) {
  /** @type {Uint8Array[]} */
  const pieces = [Uint8Array.of(0x78, 0x01)];
  for (let at = 0; at < data.length; at += 65535) {
    const part = data.subarray(at, at + 65535), size = part.length;
    const last = at + size === data.length ? 1 : 0;
    pieces.push(Uint8Array.of(last, size & 255, size >> 8, ~size & 255, (~size >> 8) & 255), part);
  }
  let a = 1, b = 0; // Adler-32
  for (const byte of data) {
    a = (a + byte) % 65521;
    b = (b + a) % 65521;
  }
  pieces.push(Uint8Array.of(b >> 8, b & 255, a >> 8, a & 255));
  return joined(pieces);
}

/** @param {string} name @param {Uint8Array} data @returns {Uint8Array} */
function chunk(name, data) {
  const made = new Uint8Array(12 + data.length), view = new DataView(made.buffer);
  view.setUint32(0, data.length);
  made.set(new TextEncoder().encode(name), 4);
  made.set(data, 8);
  let crc = 0xffffffff;
  for (const byte of made.subarray(4, 8 + data.length)) crc = CRC[(crc ^ byte) & 255] ^ (crc >>> 8);
  view.setUint32(8 + data.length, ~crc >>> 0);
  return made;
}

/** @param {Uint8Array[]} pieces @returns {Uint8Array} */
function joined(pieces) {
  const all = new Uint8Array(pieces.reduce((sum, piece) => sum + piece.length, 0));
  let at = 0;
  for (const piece of pieces) {
    all.set(piece, at);
    at += piece.length;
  }
  return all;
}
