"""Every recipe that comes with the package, and the paper's numbers, typed by hand."""

import pytest

from linfdist import recipes
from linfdist.eps import parse_eps

# Table 6, column by column: data, eps_train, kappa, t, e1, e2, e3, total; below it, what its footing says of all.
TABLE_6 = {
    "mnist": ("mnist", None, None, "0.9", 50, 300, 50, 400),
    "mnist-mlp": ("mnist", "0.35", 0.5, None, 50, 300, 50, 400),
    "fashion": ("fashion", None, None, "0.45", 50, 300, 50, 400),
    "fashion-mlp": ("fashion", "0.11", 0.5, None, 50, 300, 50, 400),
    "cifar10": ("cifar10", None, None, "80/255", 100, 650, 50, 800),
    "cifar10-mlp": ("cifar10", "8.8/255", 0.0, None, 100, 650, 50, 800),
    "tinyimagenet-mlp": ("tinyimagenet", "0.005", 0.0, None, 100, 350, 50, 500),
}
# Section 7.1 and Table 5: model, dist layers, radius, padding, flips, crop.
SETTING = {
    "mnist": ("dist_net", 5, "0.3", 1, False, None),
    "mnist-mlp": ("dist_net_mlp", 4, "0.3", 1, False, None),
    "fashion": ("dist_net", 5, "0.1", 1, False, None),
    "fashion-mlp": ("dist_net_mlp", 4, "0.1", 1, False, None),
    "cifar10": ("dist_net", 6, "8/255", 4, True, None),
    "cifar10-mlp": ("dist_net_mlp", 5, "8/255", 4, True, None),
    "tinyimagenet-mlp": ("dist_net_mlp", 5, "1/255", 0, True, 56),
}


@pytest.mark.parametrize("name", recipes.names())
def test_every_recipe_parses_names_its_source_and_survives_a_round_trip(name, tmp_path):
    recipe = recipes.load(name)
    assert recipe.name == name
    assert recipe.source.startswith(("Zhang et al., IC", "linfdist's own"))
    assert recipes.Recipe.model_validate_json(recipe.model_dump_json()) == recipe

    (tmp_path / f"{name}.toml").write_text(recipes.to_toml(recipe), encoding="utf-8")
    (tmp_path / "recipe.json").write_text(recipe.model_dump_json(), encoding="utf-8")
    assert recipes.load(tmp_path / f"{name}.toml") == recipe
    assert recipes.load(str(tmp_path / "recipe.json")) == recipe


def test_names_are_unique_and_complete():
    names = recipes.names()
    assert len(set(names)) == len(names)
    assert set(TABLE_6) <= set(names)
    assert {"cifar10-conv-mlp", "mnist-ce", "cifar10-ce", "fashion-ce"} <= set(names)
    assert {"mnist-quick", "fashion-quick", "cifar10-quick", "tinyimagenet-quick", "digits-quick"} <= set(names)


def _is(recipe, key, text):
    """Whether a key, which may be a multiple of eps, has just this value."""
    value = getattr(recipe, key)
    return value is None if text is None else recipe.fraction(key) == parse_eps(text)


@pytest.mark.parametrize("name", TABLE_6)
def test_table_6(name):
    r = recipes.load(name)
    data, eps_train, kappa, threshold, *epochs = TABLE_6[name]
    assert (r.data, r.kappa, [r.e1, r.e2, r.e3, r.epochs]) == (data, kappa, epochs)
    assert _is(r, "eps_train", eps_train)
    assert _is(r, "threshold", threshold)
    assert (r.model, r.depth, r.eps, r.pad, r.flip, r.crop) == SETTING[name]
    assert (r.beta1, r.beta2, r.adam_eps) == (0.9, 0.99, 1e-10)
    assert (r.batch_size, r.weight_decay, r.decay, r.p_start, r.p_end) == (512, 0.005, "lp", 8, 1000)
    assert r.lr == (0.04 if name == "tinyimagenet-mlp" else 0.02)
    assert (r.width, r.head, r.pad_mode, r.lr_schedule) == (5120, 512, "zero", "cosine_after_e1")
    assert r.identity_init
    assert r.mean_shift
    assert r.smooth
    assert r.loss == ("ibp" if name.endswith("mlp") else "hinge")
    assert r.source.startswith("Zhang et al., ICML 2021, Table 6, column ")
    assert f"column {list(TABLE_6).index(name) + 1}" in r.source


def test_fashion_mnist_uses_the_largest_hinge_only():
    weights = {name: recipes.load(name).hinge_mean_weight for name in ("mnist", "fashion", "cifar10")}
    assert weights == {"mnist": 0.25, "fashion": 0.0, "cifar10": 0.25}


def _differences(name: str, base: str) -> dict[str, object]:
    ours, theirs = recipes.load(name).model_dump(), recipes.load(base).model_dump()
    return {key: value for key, value in ours.items() if value != theirs[key] and key not in ("name", "source")}


def test_the_convolutional_net_differs_from_the_fully_connected_one_in_the_network_only():
    assert _differences("cifar10-conv-mlp", "cifar10-mlp") == {"model": "conv_dist_net_mlp", "width": 128, "depth": 6}


@pytest.mark.parametrize("base", ["cifar10", "cifar10-mlp"])
def test_table_3(base):
    rows = {row: _differences(f"{base}-ablation-{row}", base) for row in ("a", "b", "c", "d", "e", "no-shift")}
    assert rows == {
        "a": {"smooth": False, "identity_init": False, "decay": "none"},
        "b": {"identity_init": False, "decay": "none"},
        "c": {"decay": "none"},
        "d": {"decay": "l2"},
        "e": {},
        "no-shift": {"mean_shift": False},
    }


@pytest.mark.parametrize("depth", range(5, 11))
def test_table_7(depth):
    deeper = {} if depth == 6 else {"depth": depth}
    assert _differences(f"cifar10-depth-identity-{depth}", "cifar10") == deeper
    assert _differences(f"cifar10-depth-gaussian-{depth}", "cifar10") == deeper | {"identity_init": False}


# arXiv 2110.06850 and its code: eps, t, lambda from and to, the epochs where p starts to grow, is inf, ends.
ICLR_2022 = {
    "mnist-ce": ("0.3", "0.9", 0.05, 0.0002, 25, 400, 450),
    "mnist-ce-small-eps": ("0.1", "0.6", 0.05, 0.0002, 25, 400, 450),
    "cifar10-ce": ("8/255", "48/255", 0.1, 0.0005, 100, 1250, 1300),
    "cifar10-ce-small-eps": ("2/255", "20/255", 0.05, 0.002, 100, 1250, 1300),
    "cifar10-ce-large-eps": ("16/255", "80/255", 0.1, 0.0002, 100, 1250, 1300),
}


@pytest.mark.parametrize("name", ICLR_2022)
def test_scaled_cross_entropy_recipes(name):
    r = recipes.load(name)
    eps, threshold, *rest = ICLR_2022[name]
    assert _is(r, "threshold", threshold)
    assert (r.eps, [r.ce_start, r.ce_end, r.e1, r.e1 + r.e2, r.epochs]) == (eps, rest)
    assert (r.loss, r.lr, r.decay, r.batch_size, r.lr_schedule) == ("scaled_ce", 0.03, "none", 512, "cosine")
    assert (r.pad, r.pad_mode, r.flip) == ((3, "edge", True) if r.data == "cifar10" else (1, "edge", False))
    assert (r.model, r.width, r.depth) == ("dist_net", 5120, 6 if r.data == "cifar10" else 5)
    assert "ICLR 2022" in r.source


@pytest.mark.parametrize(("name", "width", "depth"), [("mnist-quick", 512, 5), ("cifar10-quick", 512, 6)])
def test_laptop_recipes_are_small(name, width, depth):
    r = recipes.load(name)
    assert r.width <= width * 2
    assert r.depth <= depth
    assert r.epochs <= 60
    assert "own" in r.source
