"""The search for the largest proved radius."""

import pytest
import torch

import linfdist as ld
from linfdist.certificates.proofs import FINEST, RELATIVE, STEPS, TOGETHER, BoxProof, Search, largest_proved, start

from .nets import trained_net


def search(truth, proved=None, failed=None):
    """A method that proves all radii below `truth`; every question is checked and counted."""
    asked = []

    def proves(rows, eps):
        assert eps.shape == (len(rows), 1, 1, 1)
        asked.append(rows)
        return eps.flatten() < truth[rows]

    proved = torch.zeros_like(truth) if proved is None else proved
    failed = torch.full_like(truth, torch.inf) if failed is None else failed
    return largest_proved(proves, proved, failed), asked


def test_it_finds_the_radius():
    truth = torch.tensor([1e-6, 0.001, 0.0313, 0.1, 0.3, 0.77, 0.999], dtype=torch.float64)
    for proved in (None, truth * 0.9, truth * 0.9999):
        radius, asked = search(truth, proved)
        assert (radius < truth).all()
        assert (truth - radius <= RELATIVE * truth + FINEST).all()
        assert len(asked) < STEPS  # it stopped by itself


def test_what_holds_everywhere_has_radius_one():
    radius, asked = search(torch.full((3,), torch.inf, dtype=torch.float64))
    assert radius.tolist() == [1.0, 1.0, 1.0]
    assert len(asked) < 9


def test_only_open_questions_are_asked():
    truth = torch.tensor([0.5, 2.0, 0.2, 0.0], dtype=torch.float64)
    proved = torch.tensor([0.4999, 1.7, 0.1, 0.0], dtype=torch.float64)
    failed = torch.tensor([0.5001, torch.inf, torch.inf, 1e-5], dtype=torch.float64)
    radius, asked = search(truth, proved, failed)
    assert radius[[0, 1, 3]].tolist() == proved[[0, 1, 3]].tolist()
    assert {row for rows in asked for row in rows.tolist()} == {2}


def test_every_radius_was_itself_proved():
    """A method whose proofs come and go: what is returned was proved, or given."""
    held = {(k, 0.0) for k in range(200)}
    generator = torch.Generator().manual_seed(0)

    def proves(rows, eps):
        answer = torch.rand(len(rows), generator=generator) < 0.5
        held.update(zip(rows[answer].tolist(), eps.flatten()[answer].tolist(), strict=True))
        return answer

    zeros = torch.zeros(200, dtype=torch.float64)
    radius = largest_proved(proves, zeros, torch.full_like(zeros, torch.inf))
    assert set(enumerate(radius.tolist())) <= held
    assert (radius > 0).any()


def test_steps_that_are_made_at_once_find_the_same():
    truth = torch.tensor([1e-6, 0.0313, 0.1, 0.3, 0.77, 2.0], dtype=torch.float64)
    for proved, failed in ((truth * 0, truth * 0 + torch.inf), (truth.clamp(max=1) * 0.7, truth * 1.1)):
        for some in (slice(0, 1), slice(3, 4), slice(5, 6), slice(1, 3), slice(None)):
            rows = [each[some] for each in (truth, proved, failed)]
            asked = []

            def proves(which, eps, truth=rows[0], asked=asked):
                asked.append(len(which))
                return eps.flatten() < truth[which]

            alone = largest_proved(proves, rows[1], rows[2])
            calls = len(asked)
            for together in (3, 8, 100):
                asked.clear()
                assert torch.equal(largest_proved(proves, rows[1], rows[2], together=together), alone)
                assert max(asked, default=0) <= max(together, len(rows[0]))
                assert len(asked) < calls or calls < 2 or together < 2 * len(rows[0])


def test_a_radius_hardly_beyond_the_margin_takes_one_pass():
    """As most of the zoo are: what is proved, and the six steps that fail, are known after eight proofs at once."""
    proved = torch.tensor([0.4], dtype=torch.float64)
    asked = []

    def proves(rows, eps):
        asked.append(len(rows))
        return eps.flatten() < 0.4001

    assert torch.equal(largest_proved(proves, proved, torch.full_like(proved, torch.inf), together=8), proved)
    assert asked == [8]


@pytest.mark.parametrize("eps", [None, "0.02", "0.3"])
def test_one_image_asks_for_its_radius_and_for_eps_at_once(eps, monkeypatch):
    """The boxes of one image fill one batch, eps among them, and the certificate is that of one box at a time."""
    net, x = trained_net()
    certifier, sizes = ld.Certifier(net), []
    own = BoxProof._proves

    def counted(self, rows, radii):
        sizes.append(len(rows))
        return own(self, rows, radii)

    monkeypatch.setattr(BoxProof, "_proves", counted)
    for k in range(5):
        sizes.clear()
        one = certifier(x[k : k + 1], eps)
        assert 0 < max(sizes, default=0) <= TOGETHER
        passes = len(sizes)
        sizes.clear()
        with monkeypatch.context() as alone:
            alone.setattr(BoxProof, "together", 1)
            alone.setattr("linfdist.certificates.proofs.TOGETHER", 1)
            assert ld.Certifier(net)(x[k : k + 1], eps).to_dict() == one.to_dict()
        assert len(sizes) > 2 * passes


def test_a_test_within_the_search():
    """It is tried before all steps; where it holds, the radius is at least what it stands for."""

    def search(truth, low, high):
        states = [start(0.1, float("inf"), 1.0, (high, low))]
        done = Search(lambda rows, eps: eps.flatten() <= truth, states, torch.device("cpu"), 8)
        return done.run()[0].low, done.held

    radius, held = search(0.3, 0.2, 0.25)
    assert held == [0]
    assert 0.25 < radius <= 0.3
    assert search(0.25, 0.2, 0.25)[1] == [0]
    radius, held = search(0.24, 0.2, 0.25)
    assert held == []
    assert 0.2 < radius <= 0.24
