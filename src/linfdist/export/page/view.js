/** What the page shows: pictures on canvases, bars, numbers. All text goes in as text, never as HTML. */

/** @typedef {[number, number, number]} Shape   (C, H, W) */

/** An element of the page by its id. @param {string} id @returns {any} */
export function byId(id) {
  return document.getElementById(id);
}

/**
 * A new element.
 * @param {string} tag
 * @param {string} [className]
 * @param {...(Node | string)} children
 * @returns {any}
 */
export function made(tag, className = "", ...children) {
  const element = document.createElement(tag);
  element.className = className;
  element.append(...children);
  return element;
}

/** A fraction as a decimal that is not above it. @param {number} above @param {number} below @param {number} digits @returns {string} */
export function cut(above, below, digits) {
  const scaled = Math.floor((above * 10 ** digits) / below), text = String(Math.abs(scaled)).padStart(digits + 1, "0");
  return `${scaled < 0 ? "−" : ""}${text.slice(0, text.length - digits)}.${text.slice(text.length - digits)}`;
}

/** How many levels, in words, and on the 0–1 intensity scale, cut off. @param {number} levels @returns {string} */
export function inWords(levels) {
  return `${levels} ${levels === 1 ? "level" : "levels"} of 255 (${cut(levels, 255, 4)})`;
}

/** With commas. @param {number} count @returns {string} */
export function counted(count) {
  return String(count).replace(/\B(?=(\d{3})+$)/g, ",");
}

/**
 * Paints an image of the network's shape.
 * @param {HTMLCanvasElement} canvas
 * @param {Shape} shape
 * @param {ArrayLike<number>} image
 */
export function paint(canvas, [channels, height, width], image) {
  canvas.width = width;
  canvas.height = height;
  const pen = canvas.getContext("2d");
  if (!pen) return;
  const picture = pen.createImageData(width, height), size = height * width;
  for (let i = 0; i < size; i++) {
    for (let c = 0; c < 3; c++) picture.data[4 * i + c] = image[(channels === 3 ? c * size : 0) + i];
    picture.data[4 * i + 3] = 255;
  }
  pen.putImageData(picture, 0, 0);
}

/**
 * An image with its caption, as an item of a list.
 * @param {Shape} shape
 * @param {ArrayLike<number>} image
 * @param {string} label       for those who do not see it
 * @param {...(Node | string)} caption
 * @returns {HTMLLIElement}
 */
export function thumb(shape, image, label, ...caption) {
  const canvas = made("canvas");
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", label);
  paint(canvas, shape, image);
  return made("li", "", canvas, made("span", "caption", ...caption));
}

/**
 * The logits as bars; as thin bands the ranges that they have in the ball, where there are such.
 * @param {HTMLElement} list
 * @param {string[]} names
 * @param {ArrayLike<number>} logits
 * @param {number[]} shown     the classes, in order
 * @param {number} best
 * @param {{low: ArrayLike<number>, high: ArrayLike<number>} | null} ranges   of the logits
 * @param {(logit: number) => string} written
 */
export function showBars(list, names, logits, shown, best, ranges, written) {
  const own = shown.map((c) => logits[c]);
  const least = Math.min(...own), spread = Math.max(logits[best] - least, 1e-9);
  const left = least - 0.12 * spread, width = 1.2 * spread;
  /** @param {number} value */
  const percent = (value) => Math.min(Math.max((100 * (value - left)) / width, 0), 100);
  while (list.children.length < shown.length) {
    const rail = made("div", "rail", made("div", "bar"), made("div", "band"), made("div", "floor"));
    list.append(made("li", "", made("span", "name"), rail, made("span", "value")));
  }
  const floor = ranges ? ranges.low[best] : 0;
  list.classList.toggle("floored", ranges !== null);
  list.classList.toggle("named", shown.some((c) => names[c].length > 2));
  shown.forEach((c, place) => {
    const item = /** @type {HTMLElement} */ (list.children[place]), [name, rail, value] = item.children;
    const [bar, band, line] = /** @type {HTMLElement[]} */ ([...rail.children]);
    const over = ranges !== null && c !== best && ranges.high[c] >= floor;
    item.className = `${c === best ? "best" : ""} ${over ? "over" : ""}`;
    name.textContent = names[c];
    /** @type {HTMLElement} */ (name).title = names[c];
    value.textContent = written(logits[c]);
    bar.style.width = `${percent(logits[c])}%`;
    band.hidden = ranges === null;
    if (ranges) {
      band.style.left = `${percent(ranges.low[c])}%`;
      band.style.width = `${percent(ranges.high[c]) - percent(ranges.low[c])}%`;
      line.style.left = `${percent(floor)}%`;
    }
  });
}

/**
 * The image, dimmed, with the pixels that have a say: in the layers' own colours those that decide now, and in one
 * colour all others, the earlier they come into play the stronger.
 * @param {HTMLCanvasElement} canvas
 * @param {Shape} shape
 * @param {Uint8Array} image
 * @param {{play: Uint8Array, colour: string}[]} layers   for each value of the image when it comes into play; 255: never
 */
export function showWhy(canvas, [channels, height, width], image, layers) {
  const size = height * width, cell = Math.ceil(420 / width);
  canvas.width = cell * width;
  canvas.height = cell * height;
  const pen = canvas.getContext("2d");
  if (!pen) return;
  /** @param {Uint8Array} play @param {number} i */
  const when = (play, i) => Math.min(...Array.from({ length: channels }, (_, c) => play[c * size + i]));
  /** @param {number} i @param {number} border */
  const fill = (i, border) => {
    pen.fillRect((i % width) * cell - border, Math.floor(i / width) * cell - border, cell + 2 * border, cell + 2 * border);
  };
  for (let i = 0; i < size; i++) {
    const [r, g, b] = [0, 1, 2].map((c) => Math.round(0.5 * image[(channels === 3 ? c * size : 0) + i]));
    pen.fillStyle = `rgb(${r} ${g} ${b})`;
    fill(i, 0);
    const first = Math.min(...layers.map(({ play }) => when(play, i)));
    pen.fillStyle = `rgb(255 209 102 / ${first === 255 ? 0 : 0.85 * 0.72 ** Math.log2(first + 1)})`;
    fill(i, 0);
  }
  for (let i = 0; i < size; i++) {
    for (const { colour } of layers.filter((each) => when(each.play, i) === 0)) {
      pen.fillStyle = "#ffffff";
      fill(i, 3);
      pen.fillStyle = colour;
      fill(i, 1);
    }
  }
}
