"""Who is compared: every method of `linfdist.baselines`, and the paper's own networks."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch

from ... import baselines
from ...baselines import TRAINING_METHODS, Plan, TrainingMethod
from ...baselines.methods.base import Space, Span
from ...data import Dataset, Info
from ...errors import closest
from ...models import PixelNet
from ...recipes import Recipe
from ...recipes.schema import MARGINS
from ...training import Trainer
from .rules import AUGMENTATION, OURS, SHARED

AfterEpoch = Callable[[float, float], object]  # is told how many epochs are done, and the training accuracy (percent)
_NETWORK = ("size", "width")  # what a setting may say of the network
# What is searched of ours: factors of the recipe's own value, the lowest and the highest one.
SEARCHED = {"threshold": (1 / 4, 3 / 2), "eps_train": (1 / 2, 3 / 2), "ce_end": (1 / 3, 300.0), "lr": (1 / 3, 3.0)}


def silent(epoch: float, accuracy: float) -> None:
    """Tell nobody."""


@dataclass(frozen=True)
class Task:
    """A task to learn: images, their description, and the recipe whose ε and augmentation all contenders use."""

    dataset: Dataset
    info: Info
    recipe: Recipe
    seed: int


class Contender(ABC):
    """A contender: it trains a network for a given number of epochs, and names the methods that certify it.

    name: on the command line; title, source: in tables; certified_by: the methods of `certify`, of which the best one
    for each image counts; settings: those that it tries, only the first one if there is one trial; takes: the keys of
    the recipe that its trainings depend on, None if they depend on all.
    """

    name: str
    title: str
    source: str
    certified_by: Sequence[str]
    settings: Sequence[Mapping[str, Any]]
    takes: frozenset[str] | None = SHARED

    def space(self, recipe: Recipe) -> Space:
        """Return what `linfdist tune` searches; empty if it searches nothing."""
        return {}

    def setting(self, space: Space, point: Mapping[str, float]) -> dict[str, Any]:
        """Return the setting with these numbers of the space, and the rest as in the first of `settings`."""
        return {**self.settings[0], **{key: span.form(point[key]) for key, span in space.items()}}

    @abstractmethod
    def steps_per_epoch(self, task: Task, setting: Mapping[str, Any]) -> int:
        """How many updates an epoch has."""

    @abstractmethod
    def train(
        self, task: Task, setting: Mapping[str, Any], epochs: float, after_epoch: AfterEpoch = silent
    ) -> PixelNet:
        """Train a fresh network, with its whole schedule scaled to `epochs`; return it in eval mode, on the CPU.

        Raises `Diverged` if the loss is no longer finite.
        """


class MethodContender(Contender):
    """A method of `linfdist.baselines`. A setting holds arguments of the method, its network and its plan."""

    def __init__(self, method: type[TrainingMethod]) -> None:
        self.method, self.name, self.title, self.source = method, method.name, method.title, method.source
        self.certified_by, self.settings = method.certified_by, method.settings

    def space(self, recipe: Recipe) -> Space:
        return self.method.space

    def steps_per_epoch(self, task: Task, setting: Mapping[str, Any]) -> int:
        return len(task.dataset) // self._parts(task, setting, 1.0)[1].batch_size

    def train(
        self, task: Task, setting: Mapping[str, Any], epochs: float, after_epoch: AfterEpoch = silent
    ) -> PixelNet:
        method, plan = self._parts(task, setting, epochs)
        info, size = task.info, {key: setting[key] for key in _NETWORK if key in setting}
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(task.seed)
            network = method.network(info.shape, info.num_classes, info.mean, info.std, **size)
        return baselines.train(
            network, task.dataset.images, task.dataset.labels, method, plan,
            lambda epoch: after_epoch(epoch.epoch, epoch.accuracy),
        )  # fmt: skip

    def _parts(self, task: Task, setting: Mapping[str, Any], epochs: float) -> tuple[TrainingMethod, Plan]:
        planned = {"reach", *(field.name for field in fields(Plan))}
        own = {key: value for key, value in setting.items() if key not in planned and key not in _NETWORK}
        changes = {key: value for key, value in setting.items() if key in planned}
        method, recipe = self.method(**own), task.recipe
        eps = float(recipe.fraction("eps"))
        augmentation = {key: getattr(recipe, key) for key in AUGMENTATION}
        return method, method.plan(eps, epochs, seed=task.seed, **augmentation, **changes)


class RecipeContender(Contender):
    """Networks of this package: the quick recipe of the data set. A setting has other values of the recipe's keys."""

    name = OURS
    title = "ℓ∞-dist Net"
    source = "Zhang et al., 2021; loss: Zhang et al., 2022"
    certified_by = ("box",)
    takes = None
    settings: Sequence[Mapping[str, Any]] = ({"lr": 0.03}, {"lr": 0.02}, {"lr": 0.05})

    def space(self, recipe: Recipe) -> Space:
        """Return spans around the recipe's own values, the factors of `SEARCHED`; margins are multiples of ε."""
        spans, eps = {}, recipe.fraction("eps")
        for key in (key for key in SEARCHED if key not in recipe.unused_keys() and getattr(recipe, key) is not None):
            margin = key in MARGINS
            own = float(recipe.fraction(key) / eps if margin else getattr(recipe, key))
            low, high = (factor * own for factor in SEARCHED[key])
            high = max(own, min(high, float(1 / eps))) if margin else high  # no two intensities differ by more than 1
            spans[key] = Span(low, high, own, form="{:.6g} eps".format if margin else float)
        return spans

    def steps_per_epoch(self, task: Task, setting: Mapping[str, Any]) -> int:
        return len(task.dataset) // task.recipe.override(setting).batch_size

    def train(
        self, task: Task, setting: Mapping[str, Any], epochs: float, after_epoch: AfterEpoch = silent
    ) -> PixelNet:
        recipe = task.recipe.override({**setting, "epochs": epochs, "seed": task.seed})
        trainer = Trainer(recipe, task.dataset, task.info)
        return trainer.run(lambda progress: after_epoch(progress.epoch, progress.train_accuracy))


def contenders() -> dict[str, Contender]:
    """Return all contenders by name, ours first, except methods that make only statistical claims."""
    methods = [method for method in TRAINING_METHODS.values() if method.certified_by]
    everyone: list[Contender] = [RecipeContender(), *(MethodContender(method) for method in methods)]
    return {each.name: each for each in everyone}


def chosen(names: Sequence[str], trials: int) -> list[Contender]:
    """Return the named contenders, or all, in the usual order; ValueError if one has fewer settings than trials."""
    everyone = contenders()
    for name in names:
        if name in TRAINING_METHODS and name not in everyone:
            raise ValueError(
                f"methods: {name!r} makes statistical claims and proves nothing, so it is not compared: "
                "see linfdist.baselines.smoothed"
            )
        if name not in everyone:
            raise ValueError(
                f"methods: there is no {name!r}{closest(name, everyone)}; the methods are {', '.join(everyone)}"
            )
    wanted = [each for name, each in everyone.items() if not names or name in names]
    for each in wanted:
        if trials > len(each.settings):
            raise ValueError(
                f"trials = {trials}: must be at most {len(each.settings)}, for {each.name} has so many settings to try"
            )
    return wanted
