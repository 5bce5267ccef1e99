/** Drawing on the pixels of an image, by mouse, pen, finger or keyboard. */

/**
 * @typedef {object} Surface
 * @property {HTMLCanvasElement} canvas
 * @property {[number, number, number]} shape   (C, H, W)
 * @property {() => Uint8Array} image           the one to draw on
 * @property {() => number[]} colour            of the pen, one number a channel
 * @property {(image: Uint8Array) => void} changed
 * @property {(row: number, column: number) => void} moved   the keyboard's cursor
 */

/**
 * Lets a person draw. The arrow keys move a cursor, the space bar draws there.
 * @param {Surface} surface
 */
export function letDraw({ canvas, shape, image, colour, changed, moved }) {
  const [channels, height, width] = shape, radius = 0.055 * Math.min(height, width);
  /** @type {[number, number] | null} */
  let last = null;
  let [row, column] = [height >> 1, width >> 1];

  /** @param {PointerEvent} event @returns {[number, number]} */
  function place(event) {
    const box = canvas.getBoundingClientRect();
    return [((event.clientY - box.top) / box.height) * height, ((event.clientX - box.left) / box.width) * width];
  }

  /** A soft line between two places, in units of pixels. @param {[number, number]} from @param {[number, number]} to */
  function stroke([fromY, fromX], [toY, toX]) {
    const drawn = image().slice(), ink = colour(), length = (toY - fromY) ** 2 + (toX - fromX) ** 2;
    for (let i = 0; i < height * width; i++) {
      const y = Math.floor(i / width) + 0.5, x = (i % width) + 0.5;
      const along = length ? ((y - fromY) * (toY - fromY) + (x - fromX) * (toX - fromX)) / length : 0;
      const t = Math.min(Math.max(along, 0), 1);
      const away = Math.hypot(y - fromY - t * (toY - fromY), x - fromX - t * (toX - fromX));
      const cover = Math.min(Math.max(1.2 * (radius + 0.5 - away), 0), 1);
      if (cover === 0) continue;
      for (let c = 0; c < channels; c++) {
        const at = c * height * width + i, now = image()[at];
        const mixed = now + (ink[c] - now) * cover;
        drawn[at] = ink[c] > now ? Math.ceil(mixed) : Math.floor(mixed);
      }
    }
    changed(drawn);
  }

  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    last = place(event);
    stroke(last, last);
    event.preventDefault();
    canvas.focus({ preventScroll: true });
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!last) return;
    for (const each of event.getCoalescedEvents?.() ?? []) {
      const to = place(each);
      stroke(last, to);
      last = to;
    }
    const to = place(event);
    stroke(last, to);
    last = to;
  });
  for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => (last = null));

  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (step) {
      row = Math.min(Math.max(row + step[0], 0), height - 1);
      column = Math.min(Math.max(column + step[1], 0), width - 1);
    } else if (event.key !== " ") return;
    event.preventDefault();
    if (event.key === " " || event.shiftKey) stroke([row + 0.5, column + 0.5], [row + 0.5, column + 0.5]);
    moved(row, column);
  });
}
