"""The search for the largest proved radius."""

import torch

from linfdist.certificates.proofs import FINEST, RELATIVE, STEPS, largest_proved


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
