"""Distances of vectors and of boxes, differentiable, on the best backend at hand."""
