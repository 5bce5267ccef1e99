/**
 * JSON as a tree that keeps its texts: an exact network's hash is formed of numbers and strings as they stand in the
 * file, and a key that appears twice, of which JSON.parse shows only one, must be refused.
 */

/**
 * @typedef {object} Node
 * @property {"object" | "array" | "string" | "number" | "word"} kind
 * @property {string} text   as it stands there, for all but objects and arrays
 * @property {any} value     as JSON.parse gives it
 * @property {Map<string, {key: string, node: Node}>} [members]   of an object: by key, with the key's own text
 * @property {Node[]} [items]   of an array
 */

const TOKEN = /\s*([{}[\]:,]|"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null)\s*/y;

/**
 * The tree of a JSON text; Error if it is none, or has a key twice.
 * @param {string} text
 * @returns {Node}
 */
export function parseTree(text) {
  const value = JSON.parse(text); // refuses what is no JSON, so that the rest need not
  /** @type {string[]} */
  const tokens = [];
  TOKEN.lastIndex = 0;
  for (let match = TOKEN.exec(text); match; match = TOKEN.exec(text)) tokens.push(match[1]);
  let next = 0;

  /** @param {any} own @returns {Node} */
  function node(own) {
    const first = tokens[next++];
    if (first === "{") {
      /** @type {Map<string, {key: string, node: Node}>} */
      const members = new Map();
      while (tokens[next] !== "}") {
        if (tokens[next] === ",") next++;
        const key = tokens[next], name = JSON.parse(key);
        next += 2; // the key and its colon
        if (members.has(name)) throw new Error(`the key ${key} appears twice`);
        members.set(name, { key, node: node(own[name]) });
      }
      next++;
      return { kind: "object", text: "", value: own, members };
    }
    if (first === "[") {
      const items = [];
      while (tokens[next] !== "]") {
        if (tokens[next] === ",") next++;
        items.push(node(own[items.length]));
      }
      next++;
      return { kind: "array", text: "", value: own, items };
    }
    const kind = first[0] === '"' ? "string" : /^(true|false|null)$/.test(first) ? "word" : "number";
    return { kind, text: first, value: own };
  }
  return node(value);
}

/**
 * The text of a tree with the keys of every object sorted by code points, as Python's json.dumps(…, sort_keys=True)
 * writes it.
 * @param {Node} node
 * @returns {string}
 */
export function sortedText(node) {
  if (node.kind === "array") return `[${(node.items ?? []).map(sortedText).join(", ")}]`;
  if (node.kind !== "object") return node.text;
  const members = [...(node.members ?? [])].sort(([a], [b]) => byCodePoints(a, b));
  return `{${members.map(([, each]) => `${each.key}: ${sortedText(each.node)}`).join(", ")}}`;
}

/**
 * Whether a tree is this value, whole numbers written as such: 1.0, 1e0 and true are not 1.
 * @param {Node} node
 * @param {any} expected   null, a string, a whole number, or an array of these
 * @returns {boolean}
 */
export function isSame(node, expected) {
  if (Array.isArray(expected)) {
    const items = node.items ?? [];
    return node.kind === "array" && items.length === expected.length && items.every((each, i) => isSame(each, expected[i]));
  }
  if (typeof expected === "number") return node.kind === "number" && /^-?\d+$/.test(node.text) && node.value === expected;
  return node.kind === (expected === null ? "word" : "string") && node.value === expected;
}

/**
 * The order of Python's strings. JavaScript's own is by halves of surrogate pairs.
 * @param {string} a
 * @param {string} b
 * @returns {number}
 */
export function byCodePoints(a, b) {
  const left = Array.from(a), right = Array.from(b);
  const differs = left.findIndex((letter, i) => letter !== right[i]);
  if (differs < 0) return left.length - right.length;
  if (differs >= right.length) return 1;
  return (left[differs].codePointAt(0) ?? 0) - (right[differs].codePointAt(0) ?? 0);
}
