"""Contenders that learn nothing, and at once."""

import torch

from linfdist.baselines import ReLUNet
from linfdist.experiments.tables.contenders import Contender, silent
from linfdist.training import Diverged


class Fake(Contender):
    """Its networks are random; `calls` has the epochs of all of its trainings, `stop` the number of one that fails."""

    source = "nobody, 2026"
    certified_by = ("box", "crown-ibp")
    settings = ({"lr": 0.1}, {"lr": 0.2, "kappa": (1.0, 0.0)}, {"lr": 0.3})

    def __init__(self, name="fake", stop=None, error=KeyboardInterrupt):
        self.name, self.title, self.stop, self.error, self.calls = name, name.title(), stop, error, []

    def steps_per_epoch(self, task, setting):
        return len(task.dataset) // 100

    def train(self, task, setting, epochs, after_epoch=silent):
        self.calls.append(epochs)
        after_epoch(epochs, 50.0)
        if self.stop == len(self.calls):
            raise self.error() if self.error is KeyboardInterrupt else Diverged(f"lost at {setting['lr']}", 3)
        torch.manual_seed(int(10 * setting["lr"]))
        info = task.info
        return ReLUNet(info.shape, info.num_classes, info.mean, info.std, hidden=[4]).eval()
