"""`linfdist export`: write a trained network in another form."""

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from linfdist.eps import down, nearest, parse_eps, percent, up
from linfdist.errors import console
from linfdist.files import output, read_bytes

from .boundary import say
from .options import DataDir, Model, ModelName, open_model

if TYPE_CHECKING:
    from linfdist.data import Dataset
    from linfdist.exact import FrozenNet
    from linfdist.exact.freeze import Comparison


class Format(str, Enum):
    """The forms that can be written."""

    exact = "exact"
    onnx = "onnx"
    onnx_exact = "onnx-exact"
    pruned = "pruned"
    torch = "torch"
    html = "html"


FILES = {
    Format.exact: "exact.safetensors",
    Format.onnx: "model.onnx",
    Format.onnx_exact: "exact.onnx",
    Format.pruned: "pruned.safetensors",
    Format.torch: "model.pt2",
    Format.html: "page.html",
}


def export(
    path: ModelName,
    form: Annotated[
        Format,
        typer.Option(
            "--format",
            help="exact: integers, pruned without loss (a head: float64). onnx: floats, with a certified radius unless "
            "there is a head. onnx-exact: the integers. pruned: the same floats in a small file, without weights that "
            "never count for images of [0, 1]. torch: floats, for torch.export. html: the integers on a page "
            "that classifies, proves and attacks in the browser.",
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The file to write.", show_default="beside the model")
    ] = None,
    k: Annotated[
        int | None,
        typer.Option(
            "--k",
            metavar="K",
            min=0,
            max=7,
            help="Grid of 1/(255·2^K) pixels; 0 runs in 8 bits.",
            show_default="the finest for int16",
        ),
    ] = None,
    domain: Annotated[
        tuple[Path, Path] | None,
        typer.Option(
            metavar="LEAST LARGEST",
            help="Two images, the smallest and the largest value of each pixel.",
            show_default="all images",
        ),
    ] = None,
    dataset: Annotated[
        str | None, typer.Option("--data", metavar="NAME", help="The data to compare on.", show_default="the recipe's")
    ] = None,
    eps: Annotated[
        str | None, typer.Option(metavar="E", help="Radius to compare at.", show_default="the recipe's")
    ] = None,
    limit: Annotated[int | None, typer.Option(metavar="N", min=1, help="Compare on the first N images only.")] = None,
    data_dir: DataDir = None,
) -> Path:
    """Write a network for use elsewhere. `exact` also reports what rounding to integers and pruning did to it.

    Example: linfdist export mnist-0.3 --format exact
    """
    model = open_model(path)
    target = out or model.folder / FILES[form]
    if out is None:
        target.parent.mkdir(parents=True, exist_ok=True)  # a network of the zoo has no folder yet
    target = output(target, domain or ())
    model.check_not_overwritten(target)
    if form in (Format.onnx, Format.pruned, Format.torch):
        if model.network.exact:
            raise ValueError(f"--format {form.value} is for float networks, and {path} is exact: take onnx-exact")
        why = f"--format exact, onnx-exact and html, not for {form.value}"
        _refuse(why, k=k, domain=domain, data=dataset, eps=eps, limit=limit)
        if form is Format.pruned:
            from linfdist.models import save

            save(model.network.floats, target, {"recipe": model.recipe.name} if model.recipe else {}, prune=True)
        else:
            from linfdist.export import to_onnx, to_torch_export  # what they need is an extra

            (to_onnx if form is Format.onnx else to_torch_export)(model.network.floats, target)
    else:
        if model.network.exact and form is Format.exact:
            raise ValueError(f"{path} is exact already: give a float network")
        frozen, compared = _freeze(model, k, domain, dataset, eps, limit, data_dir, page=form is Format.html)
        if form is Format.exact:
            from linfdist import exact

            exact.save(frozen, target)
        elif form is Format.html:
            write_page(model, frozen, target, dataset, eps, data_dir)
        else:
            from linfdist.export import exact_to_onnx

            exact_to_onnx(frozen, target)
        _show(frozen, compared, model, target if form is Format.exact else None)
    size = f" ({target.stat().st_size:,} bytes)" if form in (Format.html, Format.pruned) else ""
    say(f"written: {target}{size}")
    return target


def _refuse(why: str, **options: object) -> None:
    """Raise ValueError if one of these options was given: it would have no effect."""
    given = [f"--{name}" for name, value in options.items() if value is not None]
    if given:
        raise ValueError(f"{', '.join(given)}: only for {why}")


def _origin(model: Model, data_dir: Path | None) -> dict[str, Any]:
    """Return the origin that an exact file states, as its float file and recipe state it."""
    from linfdist import data

    if model.recipe is None:
        return {"recipe": None}
    facts: dict[str, Any] = {"recipe": model.recipe.name, "eps": model.recipe.eps}
    if model.recipe.data in data.NAMES:  # a folder is somewhere else on another machine
        facts["data"] = model.recipe.data
    names = model.network.class_names or data.stored_classes(model.recipe.data, data_dir)
    return facts | ({"classes": list(names)} if names else {})


def _freeze(
    model: Model,
    k: int | None,
    domain: tuple[Path, Path] | None,
    dataset: str | None,
    eps: str | None,
    limit: int | None,
    data_dir: Path | None,
    page: bool,
) -> "tuple[FrozenNet, tuple[str, Comparison] | None]":
    """Freeze the network and, if there is a data set, compare it with the float one; the comparison has a title.

    page: it is for a page, which does not need the comparison, but uses data and eps.
    """
    from linfdist import data, exact
    from linfdist.exact.freeze import with_accuracy

    network: Any = model.network  # of which kind, `freeze` checks
    if network.exact:
        others = {} if page else {"data": dataset, "eps": eps}
        _refuse("float networks; this one is exact already", k=k, domain=domain, limit=limit, **others)
        return network, None
    bounds = None
    if domain is not None:
        least, largest = (data.read_image(path, network.shape[0]) for path in domain)
        bounds = (least, largest)
    frozen = exact.freeze(network, k, bounds, _origin(model, data_dir))
    if model.recipe is None and (dataset is None or eps is None):
        if dataset is not None or eps is not None or limit is not None:
            raise ValueError(f"{model.folder} has no recipe.json: to compare accuracies, give --data and --eps")
        return frozen, None
    name, radius = model.data(dataset), model.eps(eps)
    try:
        test = data.load(name, "test", data_dir)
    except data.DataError:
        if page and dataset is None:
            return frozen, None
        raise
    frozen, compared = with_accuracy(frozen, network, test, radius, limit)
    how = "by the margin" if compared.method == "margin" else "by boxes"
    return frozen, (f"{name} test, {compared.n:,} images, eps = {radius}, {how}", compared)


def _show(frozen: "FrozenNet", compared: "tuple[str, Comparison] | None", model: Model, file: Path | None) -> None:
    """Show the effect of freezing. Bounds are rounded up, certified accuracy is cut off after two digits."""
    screen, facts = console(), frozen.facts
    distance = f"at most {up(facts['distance'], 6)}"
    if frozen.head is None:
        distance += f" pixels ({up(255 * facts['distance'], 3)} levels)"
    stem = _stem(frozen)
    types = ", ".join("int16" if layer.weight.dtype.itemsize == 2 else "int32" for layer in frozen.layers)
    if frozen.count > 1:
        types += f", and sums of the {frozen.count} neurons of each class"
    if frozen.head is not None:
        types += f", and a head of {len(frozen.head.b1)} hidden neurons in float64"
    if frozen.in_bytes:
        types += "; batches of images run in 8 bits"
    lines = Table.grid(padding=(0, 2))
    lines.add_column(style="bold")
    lines.add_row("grid", f"1/{255 * frozen.stem.steps} pixel (k = {frozen.k})")
    if stem:
        lines.add_row("pixels", stem)
    lines.add_row("layers", types)
    lines.add_row("domain", "every 8-bit image" if frozen.whole_cube else "the images given; others are refused")
    lines.add_row("weights pruned", _share(facts["weights"], facts["kept"]))
    lines.add_row("neurons removed", _share(facts["neurons"], facts["neurons_kept"]))
    lines.add_row("distance to float", f"{distance}, any logit, any image")
    if file is not None:
        before, after = model.file.stat().st_size, file.stat().st_size
        lines.add_row("file", f"{after:,} bytes; that of the float network has {before:,}")
    screen.print(lines)
    say(f"sha256 {frozen.sha256}")
    if compared is None:
        say("accuracy not compared: no recipe beside the model, and no --data and --eps")
        return
    title, values = compared
    say(title)
    table = Table()
    for heading in ("", "clean", "certified"):
        table.add_column(heading, justify="right")
    for number, name in enumerate(("float", "exact")):
        clean, certified = (percent(counts[number], values.n) for counts in (values.clean, values.certified))
        table.add_row(name, f"{nearest(clean, 2)} %", f"{down(certified, 2)} %")
    screen.print(table)


def _stem(frozen: "FrozenNet") -> str:
    """Describe what is done to the pixels before the first layer."""
    done = [] if frozen.stem.crop is None else [f"cropped to {frozen.stem.crop} x {frozen.stem.crop}"]
    if frozen.stem.clip is not None:
        low, high = (nearest(end / 2**frozen.k, 3) for end in frozen.stem.clip)
        done.append(f"clipped to levels {low} ... {high}")
    if frozen.stem.pool is not None:
        done.append(f"means of blocks of {', '.join(map(str, frozen.stem.pool.sizes))}")
    return ", ".join(done)


def _share(total: int, kept: int) -> str:
    return f"{total - kept:,} of {total:,} ({nearest(percent(total - kept, total), 1)} %)"


def write_page(
    model: Model, frozen: "FrozenNet", target: Path, dataset: str | None, eps: str | None, data_dir: Path | None
) -> None:
    """Write the page of a frozen network; print which parts are missing for lack of data.

    The page contains an exact network's file byte for byte.
    """
    from linfdist.export.html import to_html

    test = _test_images(model, frozen, dataset, data_dir)
    content = read_bytes(model.file) if model.network.exact else frozen
    folder = model.folder.parent if model.folder.name == "exact" else model.folder
    name = folder.resolve().name or model.folder.name
    to_html(content, target, name, None if test is None else test.classes, test, eps or _radius(model, frozen))


def _test_images(model: Model, frozen: "FrozenNet", dataset: str | None, data_dir: Path | None) -> "Dataset | None":
    """Load the given test images, else those of the recipe, else those that the network was measured on."""
    from linfdist import data

    stated = frozen.stated("data")  # of a file that anybody may have written: a name is looked up, a path is not
    name = dataset or (model.recipe.data if model.recipe else stated if stated in data.NAMES else None)
    if name is None:
        say("no test images on the page: there is no recipe beside the model, and no --data")
        return None
    try:
        test = data.load(name, "test", data_dir)
    except data.DataError as error:
        if dataset is not None:
            raise
        say(f"no test images on the page: {error}")
        return None
    if tuple(test.images.shape[1:]) != frozen.shape or len(test.classes) != frozen.classes:
        raise ValueError(
            f"{name} has {len(test.classes)} classes and images {tuple(test.images.shape[1:])}, the network has "
            f"{frozen.classes} and {frozen.shape}: give the data it was trained on with --data"
        )
    return test


def _radius(model: Model, frozen: "FrozenNet") -> str | None:
    """Find the recipe's radius, or else the one that the network was measured at."""
    if model.recipe is not None:
        return model.recipe.eps
    stated = frozen.stated("eps")
    try:
        parse_eps(stated or "none")
    except ValueError:
        return None
    return stated
