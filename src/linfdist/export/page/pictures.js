/** Pictures that come from outside, as images of the network's shape; and what can be done to an image. */

/** @typedef {[number, number, number]} Shape   (C, H, W) */
/** @typedef {{image: Uint8Array, note: string}} Picture   note: what was done to it, or "" */

const DIGIT = 20 / 28; // of the side: MNIST's digits fit a box of 20 pixels and have their centre of mass in the middle
const LARGEST = 25_000_000; // pixels

/**
 * An image file as it is, if it has the network's size; else its largest square, scaled.
 * @param {Blob} file
 * @param {Shape} shape
 * @returns {Promise<Picture>}
 */
export async function readPicture(file, [channels, height, width]) {
  let bitmap;
  try {
    bitmap = await createImageBitmap(file, { colorSpaceConversion: "none", premultiplyAlpha: "none" });
  } catch {
    throw new Error("this is no image that the browser can read");
  }
  if (bitmap.width * bitmap.height > LARGEST) throw new Error("this image is too large: scale it down first");
  const fits = bitmap.width === width && bitmap.height === height;
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  const pen = canvas.getContext("2d", { willReadFrequently: true });
  if (!pen) throw new Error("the browser gives this page no canvas");
  const scale = Math.min(bitmap.width / width, bitmap.height / height);
  const [w, h] = [scale * width, scale * height];
  pen.imageSmoothingQuality = "high";
  pen.drawImage(bitmap, (bitmap.width - w) / 2, (bitmap.height - h) / 2, w, h, 0, 0, width, height);
  const { data } = pen.getImageData(0, 0, width, height), size = height * width;
  const image = new Uint8Array(channels * size);
  let coloured = false;
  for (let i = 0; i < size; i++) {
    const [r, g, b] = data.subarray(4 * i, 4 * i + 3);
    coloured ||= r !== g || g !== b;
    if (channels === 1) image[i] = r === g && g === b ? r : Math.round(0.299 * r + 0.587 * g + 0.114 * b);
    else [image[i], image[size + i], image[2 * size + i]] = [r, g, b];
  }
  const done = [];
  if (!fits) done.push(`scaled from ${bitmap.width} × ${bitmap.height} to ${width} × ${height}`);
  if (coloured && channels === 1) done.push("turned gray");
  return { image, note: done.length ? `${done.join(", ")}; the proof is about the pixels you see` : "" };
}

/**
 * A bright drawing on black, scaled and moved as MNIST's digits were.
 * @param {Uint8Array} image   gray
 * @param {Shape} shape
 * @returns {Uint8Array}
 */
export function centred(image, [, height, width]) {
  let [top, left, bottom, right, mass, atY, atX] = [height, width, -1, -1, 0, 0, 0];
  image.forEach((ink, i) => {
    const y = Math.floor(i / width), x = i % width;
    if (ink < 32) return;
    [top, left, bottom, right] = [Math.min(top, y), Math.min(left, x), Math.max(bottom, y), Math.max(right, x)];
    mass += ink;
    atY += ink * y;
    atX += ink * x;
  });
  if (mass === 0) return image;
  const scale = Math.max(bottom - top + 1, right - left + 1) / (DIGIT * Math.min(height, width));
  return image.map((_, i) => {
    const y = atY / mass + (Math.floor(i / width) - (height - 1) / 2) * scale;
    const x = atX / mass + ((i % width) - (width - 1) / 2) * scale;
    return Math.round(between(image, height, width, y, x));
  });
}

/** The image between its pixels, black beyond its border. @param {Uint8Array} image @param {number} height @param {number} width @param {number} y @param {number} x */
function between(image, height, width, y, x) {
  const row = Math.floor(y), column = Math.floor(x), down = y - row, over = x - column;
  /** @param {number} r @param {number} c */
  const at = (r, c) => (r < 0 || c < 0 || r >= height || c >= width ? 0 : image[r * width + c]);
  const above = at(row, column) * (1 - over) + at(row, column + 1) * over;
  const below = at(row + 1, column) * (1 - over) + at(row + 1, column + 1) * over;
  return above * (1 - down) + below * down;
}

/** @param {Uint8Array} image @returns {Uint8Array} */
export function inverted(image) {
  return image.map((pixel) => 255 - pixel);
}
