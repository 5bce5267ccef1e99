/** The panels below the answer: the edge of the ball, the attack, and why. */

import { attack, atTheEdge, noise, ranking, towards } from "./attack.js";
import { comesIntoPlay, pathOf } from "./explain.js";
import { byId, counted, inWords, made, showWhy, thumb } from "./view.js";

/**
 * @typedef {import("./network.js").Network} Network
 * @typedef {import("./network.js").Run} Run
 * @typedef {import("./certificate.js").Proof} Proof
 * @typedef {{network: Network, names: string[], image: Uint8Array, run: Run, proof: Proof | null, levels: number}} Shown
 *   what the page shows; levels: the slider's
 */

const SLICE = 12; // milliseconds of the attack between two looks at the screen

/** Images at the edge of the slider's ball, each with its class. @param {Shown} shown */
export function showEdges({ network, names, image, run, proof, levels }) {
  const rival = ranking(run.logits)[1], size = image.length;
  /** @type {[string, ArrayLike<number>][]} */
  const ways = [
    [`towards “${names[rival]}”`, towards(network, run, rival)],
    ["noise", noise(size)],
    ["all brighter", new Int8Array(size).fill(1)],
    ["all darker", new Int8Array(size).fill(-1)],
  ];
  const classes = ways.map(([, way]) => network.run(atTheEdge(network, image, levels, way)).best);
  byId("edges").replaceChildren(
    ...ways.map(([way, direction], place) => {
      const same = classes[place] === run.best, answer = `${same ? "✓ still" : "✗ now"} “${names[classes[place]]}”`;
      const label = `The image at the edge of the ball, ${way}: ${answer}`;
      const edge = atTheEdge(network, image, levels, direction);
      return thumb(network.shape, edge, label, `${way}: `, made("span", same ? "same" : "other", answer));
    }),
  );
  const inside = proof !== null && levels <= proof.levels;
  byId("edge-verdict").textContent = inside
    ? "Within the proved radius there is no image of another class, here or anywhere else."
    : "Beyond the proved radius the class may change, and where it does not, nothing is promised.";
}

/** The paths and pixels that decide. @param {Shown} shown @param {{own: string, rival: string}} colours */
export function showReasons({ network, names, image, run, levels }, colours) {
  const rival = ranking(run.logits)[1], pair = [run.best, rival], [, height, width] = network.shape;
  const plays = pair.map((c) => comesIntoPlay(network, image, run, [c, ...pair.filter((d) => d !== c && network.head)], levels));
  const canvas = byId("why");
  showWhy(canvas, network.shape, image, [
    { play: plays[1], colour: colours.rival },
    { play: plays[0], colour: colours.own },
  ]);
  byId("paths").replaceChildren(...pair.map((c, place) => path(c, place === 0 ? "of-own" : "of-rival")));

  const inPlay = new Uint8Array(height * width);
  plays.forEach((play) => play.forEach((when, i) => (inPlay[i % inPlay.length] |= when < 255 ? 1 : 0)));
  const count = inPlay.reduce((sum, say) => sum + say, 0), all = inPlay.length;
  byId("why-text").textContent =
    `The framed pixels decide now. The yellow ones could come into play if the image changed, the brighter the sooner: ` +
    `${counted(count)} of ${counted(all)} if pixels may change by ${levels} levels. The others have no say there, whatever their value.`;
  canvas.setAttribute("aria-label", `The image with the pixels that decide: ${count} of ${all} can have a say.`);

  /** @param {number} c @param {string} kind */
  function path(c, kind) {
    const chips = pathOf(network, run, c).reverse().flatMap((step) => {
      if (step.stage === 0) {
        const at = step.neuron % (height * width), row = Math.floor(at / width);
        return [made("span", "", `pixel ${row + 1}, ${(at % width) + 1} (value ${image[step.neuron]})`)];
      }
      if (step.stage === network.stages.length && !network.head) return ["→", made("span", "end", names[c])];
      return ["→", made("span", "", `neuron ${step.neuron} (1 of ${counted(step.of)})`)];
    });
    if (network.head) chips.push("→", made("span", "end", names[c]));
    return made("div", `path ${kind}`, ...chips);
  }
}

/** The attack as the page runs it: a slice at a time, so that everything else stays alive. */
export class Fight {
  /** @param {(levels: number | null) => void} broke   told the smallest distance found so far */
  constructor(broke) {
    this.broke = broke;
    /** Counts the attacks: one that is not the last has ended. */
    this.running = 0;
    /** @type {Uint8Array | null} The image that is shown as found. */
    this.last = null;
  }

  /** Ends it, and forgets what it found. */
  clear() {
    this.running++;
    byId("fight").hidden = true;
    this.idle("Start the attack");
    this.broke(null);
  }

  /** Ends it; what it found stays. */
  stop() {
    this.running++;
    this.idle("Start again");
  }

  /** @param {string} text   of the button */
  idle(text) {
    byId("attack").textContent = text;
    byId("attack").dataset.running = "";
  }

  /** @param {Shown} shown */
  start(shown) {
    const { network, image, run, proof } = shown, own = ++this.running, proved = proof?.levels ?? 0;
    const search = attack(network, image, run.best, proved);
    const counts = { inside: 0, outside: 0 };
    byId("found").replaceChildren();
    byId("fight").hidden = false;
    byId("attack").textContent = "Stop";
    byId("attack").dataset.running = "yes";
    const slice = () => {
      if (own !== this.running) return;
      const end = performance.now() + SLICE;
      let next = search.next();
      counts[next.value.phase] = next.value.tried;
      while (!next.done && performance.now() < end) {
        next = search.next();
        counts[next.value.phase] = next.value.tried;
      }
      this.show(shown, proved, counts, next.value, next.done === true);
      if (!next.done) setTimeout(slice);
    };
    slice();
  }

  /**
   * @param {Shown} shown
   * @param {number} proved
   * @param {{inside: number, outside: number}} counts
   * @param {import("./attack.js").Progress} progress
   * @param {boolean} done
   */
  show({ network, names, image }, proved, counts, { phase, levels, found }, done) {
    const inside = byId("inside"), outside = byId("outside");
    const contradicted = found !== null && found.levels <= proved;
    if (contradicted) inside.replaceChildren(made("b", "bad", "A proof was contradicted. Please report this image."));
    else if (proved === 0) inside.replaceChildren("nothing is proved, so there is no inside");
    else {
      const none = made("b", "good", phase === "inside" ? "none so far" : "none");
      inside.replaceChildren(`${counted(counts.inside)} images tried within ${inWords(proved)}, of another class: `, none);
    }
    if (found && !contradicted) {
      const closest = made("b", "bad", `“${names[found.best]}” at ${inWords(found.levels)}`);
      outside.replaceChildren(`${counted(counts.outside)} images tried, the closest of another class: `, closest);
      if (found.levels - proved > 1 && done) outside.append(". In between, nothing is known.");
    } else if (phase === "outside") {
      const text = done ? "and none of another class was found" : `now within ${levels} levels`;
      outside.replaceChildren(`${counted(counts.outside)} images tried, ${text}`);
    } else outside.replaceChildren("comes next");
    if (found && found.image !== this.last) {
      this.last = found.image;
      this.broke(found.levels);
      const change = found.image.map((pixel, i) => 128 + Math.trunc((127 * (pixel - image[i])) / found.levels));
      byId("found").replaceChildren(
        thumb(network.shape, image, "Your image", "your image"),
        thumb(network.shape, found.image, `Taken for ${names[found.best]}`, "taken for ", made("span", "other", `“${names[found.best]}”`)),
        thumb(network.shape, change, "What was changed", "the change, enlarged"),
      );
    }
    if (done) this.idle("Attack again");
  }
}
