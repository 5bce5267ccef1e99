"""Ways to change a file of an exact network: a few are allowed, most are not, and every reader must say which."""

import json
import random

import numpy as np

from linfdist.exact import twin

from .parts import TYPES, Parts, deep

ANYTHING = [
    None, True, False, 0, 1, -1, 2, 3, 4, 5, 6, 7, 8, 255, 256, 1.0, 3.0, 0.5, -0.0, 1e400, float("nan"), 2**15, 2**20,
    2**20 + 1, 10**12, 2**31, 2**32, 2**63, 2**64, -(2**63), 10**30, 10**4000, "", "1", "abc", "U8", "F64", "I64",
    "ä\n", [], [1], [1, 1], [1, 2, 3], [6], [[6]], {}, {"a": 1}, {"outputs": 3, "inputs": 5}, [{}], deep(15), deep(16),
    deep(17), "linfdist-exact-1", "linfdist-exact-head-1", "linfdist-exact-2", "x" * 5000,
    *({"kind": kind} for kind in twin.KINDS),
    {"kind": "clip", "low": 0, "high": 9}, {"kind": "sum", "count": 2}, "crop", "clip", "pool", "dist", "sum", "head",
    {"kind": "pool", "sizes": [1], "steps": 1}, [1, 2, 2], 9, 12, 2**31 - 1,
]  # fmt: skip


def places(value, path=()) -> list[tuple]:
    """The paths to everything in a JSON value."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(each for key, part in inside for each in places(part, (*path, key)))]


def mangle(value, rng: random.Random) -> None:
    """Change something in a JSON object: a value, a key, or what is there at all."""
    *path, last = rng.choice([path for path in places(value) if path])
    for key in path:
        value = value[key]
    action = rng.choice(["set", "set", "set", "nudge", "remove", "add", "swap"])
    if action == "remove":
        del value[last]
    elif action == "add":
        if isinstance(value, dict):
            value[rng.choice(["a", "", "facts", "inputs", "k", "kind", "stages", "shape", "3.bias", "linfdist"])] = (
                rng.choice(ANYTHING)
            )
        else:
            value.insert(last, rng.choice(ANYTHING))
    elif action == "nudge" and type(value[last]) is int:
        value[last] += rng.choice([-8, -1, 1, 8])
    elif action == "swap" and isinstance(value, dict):
        value[last], value[rng.choice(list(value))] = value[rng.choice(list(value))], value[last]
    else:
        value[last] = rng.choice(ANYTHING)


def change_header(parts: Parts, rng: random.Random) -> bytes:
    mangle(parts.header, rng)
    return parts.file()


def change_entries(parts: Parts, rng: random.Random) -> bytes:
    return parts.file(outer=lambda entries: mangle(entries, rng))


def change_type_and_entry(parts: Parts, rng: random.Random) -> bytes:
    """Entries that say something else about the same bytes, with a hash that says so too."""
    name = rng.choice(list(parts.tensors))
    _, shape, data = parts.tensors[name]
    other = rng.choice(list(TYPES))
    count = len(data) // np.dtype(TYPES[other]).itemsize
    shapes = [
        [count],
        [count, 1],
        [1, count],
        [1, 1, count],
        [],
        [-1],
        [count, 0],
        [2**62, 4],
        [1] * 70,
        [count, 2**64],
    ]
    parts.tensors[name] = [other, rng.choice([shape, *shapes]), data]
    return parts.file()


def change_shape(parts: Parts, rng: random.Random) -> bytes:
    name = rng.choice(list(parts.tensors))
    values = parts.array(name)
    ways = [
        lambda: values[..., None], lambda: values[None], lambda: values.ravel(), lambda: values.T, lambda: values[:0],
        lambda: values[:-1], lambda: values[:1], lambda: values[..., :-1], lambda: values[..., :1],
        lambda: np.concatenate([values, values]), lambda: np.concatenate([values, values[:1]]),
        lambda: np.concatenate([values, values[..., :1]], -1), lambda: values.ravel()[0],
    ]  # fmt: skip
    parts.put(name, np.asarray(rng.choice(ways)()))
    return parts.file()


def change_type(parts: Parts, rng: random.Random) -> bytes:
    name = rng.choice(list(parts.tensors))
    parts.put(name, parts.array(name), rng.choice(list(TYPES)))
    return parts.file()


def change_values(parts: Parts, rng: random.Random) -> bytes:
    """A few values, a little or very much."""
    name = rng.choice(list(parts.tensors))
    values = parts.array(name)
    flat = values.reshape(-1)
    for _ in range(rng.choice([1, 1, 1, 4])):
        place = rng.randrange(len(flat))
        if values.dtype.kind == "f":
            flat[place] = rng.choice([0.0, -0.0, 1.0, 5e-324, 1e100, -1e100, 1.0000001e100, np.inf, -np.inf, np.nan])
        else:
            ends = np.iinfo(values.dtype)
            near = [min(max(int(flat[place]) + step, ends.min), ends.max) for step in (-40, -1, 1, 2, 40)]
            flat[place] = rng.choice([*near, *near, ends.min, ends.max, ends.min // 2, ends.max // 2, 0])
    parts.put(name, values)
    return parts.file()


def change_values_of_layers(parts: Parts, rng: random.Random) -> bytes:
    """A bias or a weight by a little: mostly allowed."""
    name = f"{rng.randrange(len(parts.layers))}.{rng.choice(['bias', 'weight'])}"
    values = parts.array(name)
    values[rng.randrange(len(values))] += rng.choice([-3, -1, 1, 3])
    parts.put(name, values)
    return parts.file()


def change_mask(parts: Parts, rng: random.Random) -> bytes:
    """An entry more or less, its weight with it, in a layer that stays whole otherwise."""
    number = rng.randrange(len(parts.layers))
    inputs = parts.layers[number]["inputs"]
    bits = np.unpackbits(parts.array(f"{number}.mask"), axis=1)[:, :inputs]
    full = np.zeros(bits.shape, np.int64)
    full[bits == 1] = parts.array(f"{number}.weight")
    row, column = rng.randrange(len(bits)), rng.randrange(inputs)
    bits[row, column] ^= 1
    full[row, column] = rng.choice([0, 50, 1000, -1000, 32767, int(full.max())])
    if rng.random() < 0.1:
        bits[row] = 0
    parts.put(f"{number}.mask", np.packbits(bits, axis=1))
    parts.put(f"{number}.weight", full[bits == 1])
    return parts.file()


def change_domain(parts: Parts, rng: random.Random) -> bytes:
    for name in ("lower", "upper"):
        values = parts.array(name)
        values.reshape(-1)[rng.randrange(values.size)] = rng.choice([0, 1, 89, 91, 119, 121, 254, 255])
        parts.put(name, values)
    return parts.file()


def change_tensors(parts: Parts, rng: random.Random) -> bytes:
    """Another order is allowed; other names are not."""
    names = list(parts.tensors)
    one, two = rng.sample(names, 2)
    action = rng.choice(["shuffle", "remove", "rename", "add", "swap"])
    if action == "shuffle":
        rng.shuffle(names)
        parts.tensors = {name: parts.tensors[name] for name in names}
    elif action == "swap":
        parts.tensors[one], parts.tensors[two] = parts.tensors[two], parts.tensors[one]
    else:
        new = rng.choice(["", "a", "9.bias", "00.bias", "lower ", "head.w3", "head.w1", "__metadata__", "ä"])
        tensor = parts.tensors[one] if action == "add" else parts.tensors.pop(one)
        if action != "remove":
            parts.tensors[new] = tensor
    return parts.file()


FACTS = [
    "1.0", "1.00", "1E5", "1e5", "100000.0", "1e-05", "0.00001", "-0", "-0.0", "NaN", "-Infinity", "1e999",
    '"\\ud800"', '"ä"', '"\\u00e4"', '"\\u00E4"', '"\\ud83d\\ude00"', '"\\/"', '"\\u007f"', '"\\n"', "[" * 99999,
    "[" * 15 + "]" * 15, "[" * 16 + "]" * 16, "9" * 4000, "9" * 5000, '"' + "9" * 2**18 + '"', "[ ]", "[1,2]", "[1, 2]",
    "true", "True", "'a'",
]  # fmt: skip
INNER = [
    *(('"facts": {', f'"facts": {{"a": {fact}, ') for fact in FACTS),
    ('"k": ', '"k": 1, "k": '), ('"k": ', '"k":'), ('"k": ', '"k":  '), ('"k": ', '"k": 0'), ('"k": ', '"k": -'),
    ('"k"', '"\\u006b"'), ('"outputs"', '"outputs": 3, "outputs"'), ('"crop": ', '"crop": 0, "crop": '),
    ("{", " {"), ("{", "\ufeff{"), ('"k"', '\n"k"'), ('"k"', '/**/"k"'),
]  # fmt: skip
OUTER = [
    ('"lower"', '"\\u006cower"'), ('"lower":', '"lower": '), ('"lower":{', '"lower":{"dtype":"I16",'),
    ('"lower":{', '"upper":{},"lower":{'), ('"shape":[', '"shape":[ '), ('"shape":[', '"shape":[0'),
    ('"shape":[', '"shape":[1.0,'), ('"shape":[', '"shape":[NaN,'), ('"shape":[', '"shape":[1,'),
    ("{", " {"), ("{", "\ufeff{"), ("{", "[" * 99999 + "{"), ("{", '{"a":' * 99999 + "{"),
    ("{", '{"a":' + "9" * 2**20 + ","),
    ("{", '{"__metadata__":{"linfdist":"{}"},'), ('"linfdist"', '"format":"pt","linfdist"'),
    ('"linfdist"', '"linfdist":"{}","linfdist"'), ('"linfdist"', '"linfdist\\u0000"'),
]  # fmt: skip


def change_text(parts: Parts, rng: random.Random) -> bytes:
    """What a lenient reader of JSON takes for the same, and what one reader takes so, and another one so."""
    if rng.random() < 0.05:
        return parts.file(pad=rng.choice([1, 4, 7, 8, 16]))
    old, new = rng.choice(INNER + OUTER)
    if (old, new) in OUTER:
        return parts.file(text=lambda text: text.replace(old, new, 1))
    text = json.dumps({key: value for key, value in parts.header.items() if key != "sha256"}).replace(old, new, 1)
    try:
        sha256 = Parts(json.loads(text), parts.tensors).sha256()  # of what Python reads
    except (ValueError, RecursionError):
        sha256 = parts.sha256()
    return parts.file(inner=lambda _: f'{text[:-1]}, "sha256": "{sha256}"}}')


def change_bytes(parts: Parts, rng: random.Random) -> bytes:
    data = bytearray(parts.file())
    start = 8 + int.from_bytes(data[:8], "little")
    for _ in range(rng.choice([1, 1, 2, 5])):
        place = rng.randrange(min(len(data), rng.choice([8, start, len(data)])))
        action = rng.choice(["flip", "set", "cut", "insert", "drop"])
        if action == "flip":
            data[place] ^= 1 << rng.randrange(8)
        elif action == "set":
            data[place] = rng.choice(b'\0 "{}[],:0129eE-+.\\\xff')
        elif action == "cut":
            del data[place:]
        elif action == "insert":
            data[place:place] = rng.choice([b"\0", b" ", b"0", b'"', b"\0" * 8])
        elif action == "drop":
            del data[place]
        if len(data) < 8:
            break
    return bytes(data)


def change_stages(parts: Parts, rng: random.Random) -> bytes:
    """A number of a stage, mostly to one that fits; or a stage more, less, or elsewhere. Layers stay as they are."""
    if "stages" not in parts.header:
        own = parts.header.pop("crop"), parts.header.pop("layers"), parts.header["format"]
        parts.header["stages"] = [{"kind": "crop", "side": own[0]}] * (own[0] is not None)
        parts.header["stages"] += [{"kind": "dist", **sizes} for sizes in own[1]] + [{"kind": "head"}] * (
            "head" in own[2]
        )
        parts.header["format"] = "linfdist-exact-2"
    stages = parts.header["stages"]
    new = [
        {"kind": "clip", "low": rng.choice([0, 1, 90]), "high": rng.choice([0, 200, 255, 510, 1020, 1021])},
        {"kind": "pool", "sizes": [1], "steps": rng.choice([1, 2, 3, 2**21, 2**23])},
        {"kind": "sum", "count": rng.choice([1, 2, 3])}, {"kind": "head"}, {"kind": "crop", "side": 2},
    ]  # fmt: skip
    action = rng.choice(["number", "number", "number", "add", "remove", "swap", "first"])
    stage = rng.choice(stages)
    if action == "number":
        *_, key = stage
        if key == "sizes" or rng.random() < 0.2:
            stage[key] = rng.choice([[1, 2], [2, 1], [2], [2, 4], [1, 1], [], [0], [3, 1], 2, [True], [1.0]])
        elif type(stage[key]) is int:
            stage[key] = max(0, stage[key] + rng.choice([-4, -1, 1, 4, stage[key], 2 * stage[key]]))
    elif action in ("add", "first"):
        stages.insert(0 if action == "first" else rng.randrange(len(stages) + 1), rng.choice(new))
    elif action == "remove":
        stages.remove(stage)
    else:
        one, two = rng.randrange(len(stages)), rng.randrange(len(stages))
        stages[one], stages[two] = stages[two], stages[one]
    return parts.file()


CHANGES = {
    change_header: 180, change_entries: 180, change_type_and_entry: 70, change_shape: 90, change_type: 60,
    change_values: 60, change_values_of_layers: 20, change_mask: 50, change_domain: 30, change_tensors: 50,
    change_text: 150, change_bytes: 150, change_stages: 120,
}  # fmt: skip


ALWAYS, NEVER = (change_values_of_layers,), (change_type_and_entry, change_entries, change_bytes)
