import pytest

from linfdist.recipes import Recipe, RecipeError, load


@pytest.fixture
def write(tmp_path):
    def write(text: str, name: str = "mine.toml"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_a_file_may_build_on_a_recipe(write):
    recipe = load(write('base = "mnist-quick"\nsource = "ours"\nwidth = 64\n'))
    assert (recipe.name, recipe.source, recipe.width, recipe.loss) == ("mine", "ours", 64, "scaled_ce")


def test_a_file_may_build_on_its_neighbour(write):
    write('data = "digits"\neps = "0.1"\nmodel = "dist_net"\nloss = "hinge"\nthreshold = "0.4"\n', "common.toml")
    path = write('base = "common.toml"\nsource = "ours"\nwidth = 8\ndepth = 2\ne1 = 0\ne2 = 1\ne3 = 0\n')
    assert load(path).data == "digits"


def test_variants_of_a_file(write):
    path = write('base = "mnist"\nsource = "ours"\n[variants]\nwide = { width = 99 }\nflat = { depth = 2 }\n')
    assert load(f"{path}:wide").width == 99
    assert load(f"{path}:wide").name == "mine-wide"
    with pytest.raises(RecipeError, match=r"is a family of recipes; say which: .*mine\.toml:wide, .*mine\.toml:flat"):
        load(path)
    with pytest.raises(RecipeError, match="no variant 'wyde'; did you mean wide"):
        load(f"{path}:wyde")


def test_unknown_names_get_suggestions():
    with pytest.raises(RecipeError, match="mnist-quik: no such recipe; did you mean mnist-quick"):
        load("mnist-quik")
    with pytest.raises(RecipeError, match="zzz: no such recipe; `linfdist recipes list` shows them all"):
        load("zzz")
    with pytest.raises(RecipeError, match="is a family of recipes; its members are cifar10-ablation-a"):
        load("cifar10-ablation")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("width = ", "is not valid TOML"),
        ('base = "mnist"\nsource = "ours"\nwidht = 3', "widht: no such key; did you mean width"),
        ('base = "mnist"\nsource = "ours"\neps = 0.3', "eps = 0.3: must be text in quotes"),
        ('base = "mnist"\nsource = "ours"\nwidth = "3"', "width = '3': must be a whole number"),
        ('base = "mnist"\nsource = "ours"\nname = "x"', "name: is the name of the file"),
        ('base = "mnist"\nsource = "ours"\nepochs = "three"', "epochs = 'three': must be a number more than 0"),
        ('base = "mnist"\nsource = "ours"\nhead = 3', "head = 3: has no effect here"),
        ('base = "mnits"', "base = 'mnits': no such recipe; did you mean mnist"),
        ("base = 3", "base = 3: must be the name of a recipe"),
        ('base = "gone.toml"', "base = 'gone.toml': no such file"),
        ('base = "cifar10-depth"', "one level deep"),
        ('base = "mnist-ce-small-eps"', "one level deep"),
        ('base = "mnist"\nvariants = 3', "variants: must be tables"),
        ('base = "mnist"\nsource = ""', "source = '':"),
        ('data = "mnist"', "source: is missing"),
    ],
)
def test_what_is_wrong_with_a_file_is_told_with_its_path(write, text, complaint):
    path = write(text)
    with pytest.raises(RecipeError) as caught:
        load(path)
    assert str(caught.value).startswith(str(path))
    assert complaint in str(caught.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(RecipeError, match="no such file"):
        load(tmp_path / "gone.toml")
    with pytest.raises(RecipeError, match="no such file"):
        load("gone.toml")


@pytest.mark.parametrize(("text", "complaint"), [("{", "is not valid JSON"), ("[]", "must be a JSON object")])
def test_a_broken_recipe_json(write, text, complaint):
    with pytest.raises(RecipeError, match=complaint):
        load(write(text, "recipe.json"))


def test_epochs_of_a_file_rescale_the_three_phases(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('base = "mnist"\nsource = "ours"\nepochs = 8\n')
    recipe = load(str(file))
    assert (recipe.e1, recipe.e2, recipe.e3) == (1, 6, 1)


def test_the_name_of_a_folder_is_that_folder(tmp_path, monkeypatch):
    """It is written down as a path, so that a run's recipe can be read from anywhere."""
    (tmp_path / "shapes").mkdir()
    monkeypatch.chdir(tmp_path)
    recipe = load("digits-quick").override({"data": "shapes", "resize": 32})
    assert recipe.data == "./shapes"
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert Recipe.model_validate(recipe.model_dump()).data == "./shapes"
    with pytest.raises(RecipeError, match="folder such as"):
        load("digits-quick").override({"data": "shapes"})
    with pytest.raises(RecipeError, match="resize"):
        load("digits-quick").override({"resize": 32})
