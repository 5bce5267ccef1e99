"""Head: the formula, and how it starts."""

import math

import torch

from linfdist.nn import Head


def test_formula():
    head = Head(7, 5, 3).double()
    for bias in (head.hidden.bias, head.output.bias):
        torch.nn.init.normal_(bias)
    x = torch.randn(4, 7, dtype=torch.float64)
    inner = torch.tanh(x @ head.hidden.weight.T / math.sqrt(7) + head.hidden.bias)
    torch.testing.assert_close(head(x), inner @ head.output.weight.T / math.sqrt(5) + head.output.bias)


def test_starts_gaussian_with_zero_biases():
    head = Head(400, 300, 200)
    for layer in (head.hidden, head.output):
        assert abs(layer.weight.std() - 1) < 0.01
        assert not layer.bias.any()
    assert head(torch.randn(64, 400)).std() < 2


def test_bounds_see_the_weights_in_use():
    head = Head(7, 5, 3)
    x = torch.randn(4, 7)
    hidden = torch.nn.functional.linear(x, head.hidden.scaled_weight(), head.hidden.bias)
    assert torch.equal(head.hidden(x), hidden)


def test_the_terms_of_both_layers_count():
    assert Head(7, 5, 3).terms((7,)) == 7 * 5 + 5 * 3
