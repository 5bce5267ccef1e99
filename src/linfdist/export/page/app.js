/** The page itself: what is shown, and what people do to it. */

import { certificateOf, certificateText, checkCertificate, prove } from "./certificate.js";
import { ranking } from "./attack.js";
import { letDraw } from "./draw.js";
import { Network } from "./network.js";
import { Fight, showEdges, showReasons } from "./panels.js";
import { centred, inverted, readPicture } from "./pictures.js";
import { encodePng } from "./png.js";
import { byId, counted, cut, inWords, made, paint, showBars } from "./view.js";

const SCALES = [16, 32, 64, 128, 192, 255]; // where the slider may end, in levels
const CALM = 90; // milliseconds without a change after which the slower panels follow
const MOST_BARS = 12;

try {
  start();
} catch (error) {
  byId("fault").hidden = false;
  byId("fault").textContent = `This page cannot be used: ${/** @type {Error} */ (error).message}`;
  throw error;
}

function start() {
  const page = JSON.parse(byId("page-data").textContent);
  const network = new Network(fromBase64(byId("network-data").textContent));
  const { shape } = network, [channels, height, width] = shape, size = channels * height * width;
  /** @type {string[]} */
  const names = Array.from({ length: network.classes }, (_, c) => page.classes?.[c] ?? String(c));
  const file = page.name.replace(/[^A-Za-z0-9._-]+/g, "-").replace(/^[.-]+/, "") || "network";
  const samples = page.samples && { ...page.samples, pixels: fromBase64(page.samples.images) };
  const most = SCALES.find((end) => end >= 2.5 * (page.eps?.levels ?? 25)) ?? 255;

  /** @type {import("./panels.js").Shown & {label: number | null, sample: number | null}} */
  const shown = { network, names, image: network.lower.slice(), run: network.run(network.lower), proof: null, levels: page.eps?.levels ?? 8, label: null, sample: null };
  /** @type {number | null} The distance at which the attack has broken this image. */
  let broken = null;
  let pen = true, waiting = 0, calm = 0;
  const fight = new Fight((levels) => {
    broken = levels;
    showLine();
  });

  /**
   * Show another image.
   * @param {Uint8Array} image
   * @param {{label?: number | null, sample?: number | null, note?: string}} [about]
   */
  function set(image, { label = null, sample = null, note = "" } = {}) {
    Object.assign(shown, { image, label, sample });
    byId("note").textContent = note;
    byId("checked").hidden = true;
    fight.clear();
    stir();
    waiting ||= requestAnimationFrame(render);
  }

  function render() {
    waiting = 0;
    const began = performance.now();
    shown.run = network.run(shown.image);
    shown.proof = network.inside(shown.image) ? prove(network, shown.image, shown.run) : null;
    paint(byId("image"), shape, shown.image);
    byId("image").parentElement.classList.toggle("empty", shown.image.every((pixel, i) => pixel === network.lower[i]));
    showAnswer();
    showBall();
    document.documentElement.dataset.milliseconds = String(performance.now() - began); // these too
    followLater();
  }

  /** Something has changed, and not everything shows it yet. */
  function stir() {
    document.documentElement.dataset.settled = "no"; // read by the tests
  }

  /** The slower panels come after a moment of calm. */
  function followLater() {
    stir();
    clearTimeout(calm);
    calm = setTimeout(() => {
      const style = getComputedStyle(document.documentElement);
      showEdges(shown);
      showReasons(shown, { own: style.getPropertyValue("--proved").trim(), rival: style.getPropertyValue("--broken").trim() });
      byId("announcement").textContent = `${byId("class").textContent}. ${byId("claim").textContent} ${byId("status").textContent}.`;
      document.documentElement.dataset.settled = "yes";
    }, CALM);
  }

  function showAnswer() {
    const { run, proof, label } = shown, name = names[run.best];
    byId("class").textContent = name;
    byId("image").setAttribute("aria-label", `Image of ${width} by ${height} pixels, classified as ${name}`);
    const claim = byId("claim");
    if (!network.inside(shown.image)) claim.textContent = "This image is outside the domain that the network was made for: nothing is proved.";
    else if (!proof) claim.textContent = "Its two best logits are closer than rounding: it has no certain class, and nothing is proved.";
    else if (proof.levels === 0) claim.textContent = "Not proved for any change: an image next to this one may be of another class.";
    else claim.replaceChildren("Proved for every image whose pixels differ by at most ", made("b", "", inWords(proof.levels)), ".");
    const wrong = label !== null && label !== run.best;
    byId("remark").hidden = !wrong;
    if (wrong) byId("remark").textContent = `The label of this test image is “${names[label]}”: the answer is wrong. A proof says that it does not change, not that it is right.`;
    for (const id of ["save-certificate", "attack"]) byId(id).disabled = !proof;
    const at = shown.sample === null ? "" : `test image ${shown.sample + 1} of ${samples.labels.length}`;
    byId("sample-name").textContent = at ? `${at}, label “${names[label ?? 0]}”` : samples ? `${samples.labels.length} test images` : "";
  }

  /** What depends on the slider. */
  function showBall() {
    const { run, proof, levels, image } = shown, ranges = network.head ? null : logitRanges(image, levels);
    byId("eps-value").textContent = inWords(levels);
    byId("eps").setAttribute("aria-valuetext", inWords(levels));
    const holds = proof !== null && levels <= proof.levels, status = byId("status");
    status.textContent = holds ? "✓ proved" : "✗ not proved";
    status.className = `chip ${holds ? "yes" : "no"}`;
    const order = ranking(run.logits), classes = network.classes <= MOST_BARS ? order.slice().sort((a, b) => a - b) : order.slice(0, MOST_BARS);
    const written = (/** @type {number} */ logit) => (network.head ? cut(logit, 1, 3) : cut(logit, network.steps, 1));
    showBars(byId("bars"), names, run.logits, classes, run.best, ranges, written);
    byId("bars-help").textContent = ranges
      ? "in levels; the bands are where they stay within the slider's ball. Proved if no other band reaches the line."
      : "of the head, in its own units";
    showLine();
  }

  /** @param {Uint8Array} image @param {number} levels */
  function logitRanges(image, levels) {
    const { low, high } = network.boxes(image, levels)[network.stages.length];
    return { low: high.map((y) => -y), high: low.map((y) => -y) };
  }

  function showLine() {
    /** @param {number} levels */
    const percent = (levels) => `${(100 * Math.min(levels, most)) / most}%`;
    byId("zone-proved").style.width = percent(shown.proof?.levels ?? 0);
    byId("zone-broken").style.left = percent(broken ?? most);
    byId("key-broken").hidden = broken === null;
  }

  // --- drawing -------------------------------------------------------------------------------------------------------
  letDraw({
    canvas: byId("image"),
    shape,
    image: () => shown.image,
    colour: () => {
      if (!pen) return Array(channels).fill(0);
      const hex = byId("colour").value;
      return channels === 1 ? [255] : [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
    },
    changed: (image) => set(image.map((pixel, i) => Math.min(Math.max(pixel, network.lower[i]), network.upper[i]))),
    moved: (row, column) => {
      const style = byId("cursor").style, canvas = byId("image");
      byId("cursor").hidden = false;
      [style.width, style.height] = [`${100 / width}%`, `${100 / height}%`];
      [style.left, style.top] = [`${(100 * column) / width}%`, `${(100 * row) / height}%`];
      canvas.setAttribute("aria-label", `Row ${row + 1}, column ${column + 1}`);
    },
  });
  byId("image").addEventListener("blur", () => (byId("cursor").hidden = true));
  for (const [id, on] of /** @type {[string, boolean][]} */ ([["pen", true], ["eraser", false]])) {
    byId(id).addEventListener("click", () => {
      pen = on;
      byId("pen").setAttribute("aria-pressed", String(on));
      byId("eraser").setAttribute("aria-pressed", String(!on));
    });
  }
  byId("clear").addEventListener("click", () => set(network.lower.slice()));
  byId("centre").addEventListener("click", () => set(centred(shown.image, shape)));
  byId("invert").addEventListener("click", () => set(inverted(shown.image)));
  byId("colour-field").hidden = channels === 1;
  byId("centre").hidden = channels !== 1;

  // --- test images ---------------------------------------------------------------------------------------------------
  /** @param {number} number */
  function sample(number) {
    const count = samples.labels.length, at = (number + count) % count;
    set(samples.pixels.slice(at * size, (at + 1) * size), { label: samples.labels[at], sample: at });
  }
  byId("samples").hidden = !samples;
  byId("next").addEventListener("click", () => sample(shown.sample === null ? 0 : shown.sample + 1));
  byId("previous").addEventListener("click", () => sample(shown.sample === null ? -1 : shown.sample - 1));

  // --- files, in and out ---------------------------------------------------------------------------------------------
  /** Images first, then the certificates that may be about them. @param {Iterable<File>} given */
  async function take(given) {
    const files = [...given], isText = (/** @type {File} */ each) => /json/.test(each.type) || /\.jsonl?$/i.test(each.name);
    for (const each of files.filter((one) => !isText(one))) {
      try {
        const { image, note } = await readPicture(each, shape);
        set(image, { note: note || "Opened as it is, pixel by pixel." });
      } catch (error) {
        byId("note").textContent = `${each.name || "The image"}: ${/** @type {Error} */ (error).message}.`;
      }
    }
    for (const each of files.filter(isText)) check(each.name, await each.text());
  }

  /** @param {string} name @param {string} text */
  function check(name, text) {
    const checked = byId("checked");
    checked.hidden = false;
    try {
      const { class: best, levels } = checkCertificate(network, shown.image, text);
      checked.className = "checked yes";
      checked.textContent = `✓ ${name}: verified. Class “${names[best]}” for all images of the domain within ${levels} levels of the image shown.`;
    } catch (error) {
      checked.className = "checked no";
      checked.textContent = `✗ ${name}: refused. ${/** @type {Error} */ (error).message}.`;
    }
    checked.scrollIntoView({ block: "nearest" });
  }

  /** @param {string} name @param {BlobPart} content @param {string} type */
  function save(name, content, type) {
    const link = document.createElement("a"), url = URL.createObjectURL(new Blob([content], { type }));
    Object.assign(link, { href: url, download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 60_000);
  }
  byId("save-certificate").addEventListener("click", () => {
    const { image, proof } = shown;
    if (proof) save(`${file}.json`, certificateText(certificateOf(network, image, proof)), "application/json");
  });
  byId("save-image").addEventListener("click", () => save(`${file}.png`, /** @type {BlobPart} */ (encodePng(shape, shown.image)), "image/png"));
  byId("save-network").addEventListener("click", () => save(`${file}.safetensors`, /** @type {BlobPart} */ (network.bytes), "application/octet-stream"));
  byId("command").textContent = `linfdist verify ${file}.json ${file}.png ${file}.safetensors`;
  for (const id of ["open", "check"]) byId(id).addEventListener("click", () => byId("file").click());
  byId("file").addEventListener("change", async (/** @type {any} */ event) => {
    await take(event.target.files);
    event.target.value = "";
  });
  document.addEventListener("paste", (event) => take(event.clipboardData?.files ?? []));
  document.addEventListener("dragover", (event) => {
    event.preventDefault();
    document.body.classList.add("dropping");
  });
  document.addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) document.body.classList.remove("dropping");
  });
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    document.body.classList.remove("dropping");
    take(event.dataTransfer?.files ?? []);
  });

  // --- slider and attack ---------------------------------------------------------------------------------------------
  const slider = byId("eps");
  slider.max = String(most);
  slider.value = String(Math.min(shown.levels, most));
  slider.addEventListener("input", () => {
    shown.levels = Number(slider.value);
    showBall();
    followLater();
  });
  byId("trained").hidden = byId("key-trained").hidden = !page.eps;
  if (page.eps) {
    byId("trained").style.left = `${(100 * page.eps.levels) / most}%`;
    byId("trained-name").textContent = `ε = ${page.eps.text}, which it was trained for`;
  }
  byId("attack").addEventListener("click", () => {
    if (byId("attack").dataset.running) fight.stop();
    else fight.start(shown);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", followLater);

  // --- about the network ---------------------------------------------------------------------------------------------
  byId("head-caveat").hidden = !network.head;
  byId("sha256").textContent = `sha256 ${network.sha256}`;
  byId("facts").textContent = factsText(network);
  byId("page").hidden = false;
  if (samples) sample(0);
  else set(shown.image);

  /** For the console, and for tests: the same network, without the page around it. */
  Object.assign(window, {
    linfdist: Object.freeze({
      network,
      read: (/** @type {Uint8Array} */ bytes) => new Network(bytes),
      certify: (/** @type {Network} */ by, /** @type {Uint8Array} */ image) => {
        const proof = prove(by, image, by.run(image));
        return proof && certificateOf(by, image, proof);
      },
      check: checkCertificate,
      image: () => shown.image.slice(),
    }),
  });
}

/** What is known of the network, in a sentence or two. @param {Network} network @returns {string} */
function factsText({ facts, classes, shape, wholeCube }) {
  const said = [`${counted(classes)} classes, images of ${shape[2]} × ${shape[1]} pixels${shape[0] === 3 ? " in colour" : ""}`];
  if (Number.isInteger(facts?.kept)) said.push(`${counted(facts.kept)} weights`);
  if (!wholeCube) said.push("proofs are about the images of its domain");
  const measured = facts?.accuracy;
  const percentages = [measured?.clean, measured?.certified];
  if (Number.isInteger(measured?.n) && measured.n > 0 && percentages.every((each) => each >= 0 && each <= 100)) {
    const [right, proved] = percentages.map((each) => cut(Math.round((each * measured.n) / 100), measured.n / 100, 2));
    said.push(`according to its file, of ${counted(measured.n)} ${measured.data} ${measured.split} images ${right} % are right, and ${proved} % are right and proved at ε = ${measured.eps}`);
  }
  return `${said.join("; ")}.`;
}

/** @param {string} text @returns {Uint8Array} */
function fromBase64(text) {
  const binary = atob(text.trim()), bytes = new Uint8Array(binary.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}
