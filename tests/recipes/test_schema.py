import math
from fractions import Fraction

import pytest
from pydantic import ValidationError

from linfdist.data import NAMES
from linfdist.recipes import Recipe, RecipeError, load, override, setting, to_toml
from linfdist.recipes.losses import DECLARED
from linfdist.recipes.networks import NETWORKS

HINGE = {
    "name": "mine",
    "source": "ours",
    "data": "mnist",
    "eps": "0.3",
    "model": "dist_net",
    "width": 8,
    "depth": 2,
    "loss": "hinge",
    "threshold": "0.9",
    "e1": 1,
    "e2": 2,
    "e3": 1,
}
IBP = {key: value for key, value in HINGE.items() if key != "threshold"} | {
    "model": "dist_net_mlp",
    "loss": "ibp",
    "kappa": 0.5,
    "eps_train": "0.35",
}
SCALED_CE = HINGE | {"loss": "scaled_ce", "ce_start": 0.05, "ce_end": 0.0002}


def test_defaults_are_the_papers():
    r = Recipe.model_validate(HINGE)
    assert (r.head, r.batch_size, r.lr, r.beta1, r.beta2, r.adam_eps) == (512, 512, 0.02, 0.9, 0.99, 1e-10)
    assert (r.decay, r.weight_decay, r.p_start, r.p_end, r.lr_schedule) == ("lp", 0.005, 8, 1000, "cosine_after_e1")
    assert (r.pad, r.pad_mode, r.flip, r.crop, r.seed, r.holdout) == (0, "zero", False, None, 0, 0)
    assert all((r.identity_init, r.mean_shift, r.smooth))
    assert r.hinge_mean_weight == 0.25


def test_every_field_says_what_it_means():
    assert not [key for key, field in Recipe.model_fields.items() if not field.description]


def test_fractions_are_exact():
    assert Recipe.model_validate(HINGE | {"threshold": "80/255"}).fraction("threshold") == Fraction(80, 255)
    assert Recipe.model_validate(IBP).fraction("eps_train") == Fraction(7, 20)
    multiple = Recipe.model_validate(HINGE | {"threshold": "2.5 eps"})
    assert multiple.fraction("threshold") == Fraction(3, 4)
    assert multiple.override({"eps": "8/255"}).fraction("threshold") == Fraction(20, 255)
    assert multiple.override({"eps": "8/255", "threshold": "0.1"}).fraction("threshold") == Fraction(1, 10)
    with pytest.raises(ValueError, match="loss = 'ibp' has no threshold"):
        Recipe.model_validate(IBP).fraction("threshold")


def test_a_recipe_cannot_be_changed_in_place():
    with pytest.raises(ValidationError):
        Recipe.model_validate(HINGE).width = 3


@pytest.mark.parametrize(
    ("base", "changes", "complaint"),
    [
        (HINGE, {"threshold": None}, "threshold: is missing; loss = 'hinge' needs threshold"),
        (SCALED_CE, {"threshold": None}, "threshold: is missing"),
        (SCALED_CE, {"ce_end": None}, "ce_end: is missing"),
        (SCALED_CE, {"ce_end": 0.0}, "greater than 0"),
        (HINGE, {"ce_start": 0.1}, "ce_start = 0.1: does not go with loss = 'hinge'"),
        (HINGE, {"kappa": 0.1}, "kappa = 0.1: does not go with loss = 'hinge'"),
        (HINGE, {"eps_train": "0.1"}, "eps_train = '0.1': does not go with loss = 'hinge'"),
        (IBP, {"threshold": "0.9"}, "threshold = '0.9': does not go with loss = 'ibp'"),
        (IBP, {"kappa": None}, "kappa: is missing"),
        (IBP, {"kappa": 1.5}, "less than or equal to 1"),
        (IBP, {"eps_train": None}, "eps_train: is missing"),
        (IBP, {"eps_train": "8/0"}, "eps_train = '8/0': divides by zero"),
        (IBP, {"model": "dist_net"}, "loss = 'ibp': must be hinge or .*scaled_ce.* for model = 'dist_net'"),
        (HINGE, {"model": "dist_net_mlp"}, "loss = 'hinge': must be ibp or ibp_hinge.* for model = 'dist_net_mlp'"),
        (HINGE, {"depth": 1}, "depth = 1: must be at least 2"),
        (IBP, {"model": "conv_dist_net_mlp", "depth": 5}, "depth = 5: must be 6"),
        (HINGE, {"depth": 0}, "greater than or equal to 1"),
        (HINGE, {"width": 0}, "greater than or equal to 1"),
        (HINGE, {"width": 2.5}, "valid integer"),
        (HINGE, {"p_start": 0.5}, "greater than or equal to 1"),
        (HINGE, {"p_start": 1000}, "p_end = 1000: must be more than p_start = 1000"),
        (HINGE, {"p_end": math.inf}, "finite"),
        (HINGE, {"e1": -1}, "greater than or equal to 0"),
        (HINGE, {"e2": 0}, "greater than 0"),
        (HINGE, {"e3": math.nan}, "finite"),
        (HINGE, {"lr": 0}, "greater than 0"),
        (HINGE, {"beta2": 1}, "less than 1"),
        (HINGE, {"hinge_mean_weight": -0.1}, "greater than or equal to 0"),
        (HINGE, {"threshold": "0"}, "must be more than 0"),
        (HINGE, {"threshold": "2.5"}, "is more than 2"),
        (
            HINGE,
            {"e4": 1, "box_lr": 0.1, "box_threshold": "0.1", "clip": [0.3, 0.7], "box_clip": [0.3, 0.7]},
            "must be none, as there is a clip",
        ),
        (HINGE, {"threshold": "0 eps"}, "must be more than 0, and eps = 0.3"),
        (HINGE, {"threshold": "3 eps", "eps": "0"}, "must be more than 0, and eps = 0"),
        (HINGE, {"threshold": "7 eps"}, "is 2.1, because eps = 0.3; must be at most 2"),
        (HINGE, {"threshold": "x eps"}, "is not a number"),
        (HINGE, {"threshold": "-1 eps"}, "is negative"),
        (HINGE, {"threshold": "eps"}, "is not a number"),
        (IBP, {"eps_train": "4 eps"}, "is 1.2, because eps = 0.3; must be at most 1"),
        (HINGE, {"eps": "1.5"}, "eps = '1.5': is more than 1"),
        (HINGE, {"eps": 0.3}, "valid string"),
        (HINGE, {"data": "mnits"}, "did you mean mnist"),
        (HINGE, {"crop": 29}, "crop = 29: must be at most 28"),
        (HINGE, {"pad": 28}, "pad = 28: must be less than 28"),
        (HINGE, {"seed": -1}, "greater than or equal to 0"),
        (HINGE, {"name": "../up"}, "match pattern"),
        (HINGE, {"widht": 3}, "not permitted"),
    ],
)
def test_the_impossible_is_refused(base, changes, complaint):
    with pytest.raises(ValidationError, match=complaint):
        Recipe.model_validate(base | changes)


@pytest.mark.parametrize("data", ["./flowers", "/data/flowers", "~/flowers", "flowers/", "C:\\flowers"])
def test_data_may_be_a_folder(data):
    assert Recipe.model_validate(HINGE | {"data": data, "crop": 500}).data == data


def test_settings_are_read_by_the_type_of_their_key():
    r = override(
        load("mnist"), ["width=1024", "lr=1e-3", "flip=true", "eps=8/255", "crop=24", "decay=none", "data=./a=b"]
    )
    assert (r.width, r.lr, r.flip, r.eps, r.crop, r.decay, r.data) == (1024, 0.001, True, "8/255", 24, "none", "./a=b")
    assert override(r, ["crop=none"]).crop is None


def test_the_source_says_what_was_changed():
    r = load("mnist")
    assert override(r, []) == r
    changed = override(r, ["width=64", "epochs=5"])
    assert changed.source == f"{r.source}; changed: width=64, epochs=5"
    assert changed.name == "mnist"
    assert override(r, ["source=my notes", "width=64"]).source == "my notes"


@pytest.mark.parametrize(
    ("epochs", "expected"), [("8", (1, 6, 1)), ("400", (50, 300, 50)), ("0.5", (0.0625, 0.375, 0.0625))]
)
def test_epochs_rescale_the_three_phases(epochs, expected):
    r = override(load("mnist"), [f"epochs={epochs}"])
    assert (r.e1, r.e2, r.e3) == pytest.approx(expected)
    assert r.epochs == pytest.approx(float(epochs))


def test_a_mapping_of_values_works_too():
    r = load("mnist").override({"width": "64", "depth": 3, "epochs": 4, "identity_init": False})
    assert (r.width, r.depth, r.epochs, r.identity_init) == (64, 3, 4, False)


def test_the_loss_can_be_exchanged_as_a_whole():
    settings = ["loss=scaled_ce", "ce_start=0.05", "ce_end=0.0002", "lr_schedule=cosine"]
    assert override(load("mnist"), settings).loss == "scaled_ce"
    settings = ["model=dist_net_mlp", "loss=ibp", "threshold=none", "kappa=0", "eps_train=0.35"]
    assert override(load("mnist"), settings).threshold is None


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("widht=3", "widht: no such key; did you mean width?"),
        ("qqq=3", "qqq: no such key; the keys are name, source, data"),
        ("epoch=3", "epoch: no such key; did you mean epochs"),
        ("width=abc", "width = 'abc': must be a whole number (neurons"),
        ("width=0", "width = '0': must be at least 1 (neurons"),
        ("width=10.5", "width = '10.5': must be a whole number"),
        ("width=3000000000", "width = '3000000000': must be at most 2,147,483,647 (neurons"),
        ("depth=1001", "depth = '1001': must be at most 1,000 (number"),
        (f"pad={10**400}", "pad = '1000000"),
        ("beta1=1", "beta1 = '1': must be less than 1"),
        ("scale_start=1e39", "scale_start = '1e39': must be at most 1000"),
        ("hinge_mean_weight=2", "hinge_mean_weight = '2': must be at most 1"),
        ("lr=fast", "lr = 'fast': must be a number"),
        ("lr=inf", "lr = 'inf': must be finite"),
        ("flip=perhaps", "flip = 'perhaps': must be true or false"),
        (
            "loss=hing",
            f"loss = 'hing': must be one of {', '.join(DECLARED)}; did you mean hinge or ibp_hinge?",
        ),
        ("model=resnet", f"model = 'resnet': must be one of {', '.join(NETWORKS)}"),
        ("eps=0.3.1", "eps = '0.3.1': is not a number; give a decimal such as 0.3 or a fraction such as 8/255"),
        ("threshold=0", "threshold = '0': must be more than 0"),
        ("data=mnits", f"data = 'mnits': must be one of {', '.join(NAMES)}, or a folder"),
        ("threshold=none", "threshold: is missing; loss = 'hinge' needs threshold"),
        ("head=64", "head = '64': has no effect here, because model = 'dist_net' has no head"),
        ("crop=29", "crop = 29: must be at most 28"),
        ("epochs=0", "epochs = '0': must be a number more than 0"),
        ("epochs=many", "epochs = 'many': must be a number more than 0"),
        ("epochs=nan", "epochs = 'nan': must be a number more than 0"),
        ("width", "'width': must be key=value, such as width=1024"),
        ("width=", "'width=': must be key=value"),
        ("=3", "'=3': must be key=value"),
    ],
)
def test_settings_that_cannot_be_are_explained(setting, complaint):
    with pytest.raises(RecipeError) as caught:
        override(load("mnist"), [setting])
    assert str(caught.value).startswith(complaint)


def test_all_problems_are_told_at_once():
    with pytest.raises(RecipeError) as caught:
        override(load("mnist"), ["width=0", "lr=-1"])
    assert "width = '0'" in str(caught.value)
    assert "lr = '-1'" in str(caught.value)


@pytest.mark.parametrize("key", ["width", "pad", "pool", "clip", "epochs", "data", "flip", "seed"])
@pytest.mark.parametrize("value", [10**400, {"a": 1}, "x" * 5000, [[]]], ids=["huge", "mapping", "text", "list"])
def test_no_value_leads_to_another_error_or_to_a_message_without_end(key, value):
    with pytest.raises(RecipeError) as caught:
        load("digits-quick").override({key: value})
    assert f"{key} = " in str(caught.value) or f"{key}: " in str(caught.value)
    assert "Input should" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_epochs_and_a_phase_contradict_each_other():
    with pytest.raises(RecipeError, match="does not go with e1"):
        override(load("mnist"), ["epochs=5", "e1=1"])


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("mnist-ce", "hinge_mean_weight=0.5"),
        ("mnist", "scale_start=5"),
        ("mnist-ce", "weight_decay=0.1"),
        ("digits-quick", "pad_mode=edge"),
        ("cifar10-ablation-a", "p_end=100"),
    ],
)
def test_a_setting_without_effect_is_an_error(name, setting):
    with pytest.raises(RecipeError, match="has no effect here"):
        override(load(name), [setting])


def test_mirror_pairs_leave_flips_without_effect():
    recipe = override(load("tinyimagenet-quick"), ["mirror_pairs=true"])
    assert "flip =" not in to_toml(recipe)
    with pytest.raises(RecipeError, match="flip = 'true': has no effect here, because mirror_pairs = true"):
        override(recipe, ["flip=true"])


def test_lists_are_read_from_text_and_written_back():
    recipe = load("digits-quick").override({"pool": "1, 2,4", "clip": "0.25,0.75", "per_class": "3"})
    assert (recipe.pool, recipe.clip, recipe.per_class) == ([1, 2, 4], [0.25, 0.75], 3)
    again = override(load("digits-quick"), [setting(key, getattr(recipe, key)) for key in ("pool", "clip")])
    assert (again.pool, again.clip) == (recipe.pool, recipe.clip)
    assert recipe.override({"pool": "[]", "clip": "none"}).pool == []
    for changes, value in [
        ({"clip": "0.7,0.3"}, "0.7"),
        ({"clip": "0.5"}, "0.5"),
        ({"pool": "0"}, "0"),
        ({"pool": "x"}, "x"),
    ]:
        with pytest.raises(RecipeError, match=value):
            recipe.override(changes)
