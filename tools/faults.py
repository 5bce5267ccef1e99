"""Faults that tests must catch, written by hand: `tools.mutation` plants them."""

from typing import NamedTuple


class Fault(NamedTuple):
    """What is wrong, the snippet and what replaces it, and the tests that must notice, below `tests`."""

    what: str
    before: str
    after: str
    tests: str


FAULTS = [
    # --- ops
    Fault(
        "the output of a convolution is too large by one",
        "(size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1",
        "(size + 2 * padding - dilation * (kernel - 1)) // stride + 1",
        "ops/test_conv.py ops/test_opcheck.py",
    ),
    Fault(
        "the gradient of a box goes to the wrong bound",
        "through(nearest, grad_near, near_where, near_where >= 0, need_lower)",
        "through(nearest, grad_near, near_where, near_where < 0, need_lower)",
        "ops/test_box_dist.py",
    ),
    Fault(
        "a box in the wrong order is accepted",
        "wrong = lower > upper\n",
        "wrong = lower > upper + 1\n",
        "ops/test_inputs.py ops/test_box_dist.py",
    ),
    Fault(
        "vmap unflattens the wrong axis",
        "mapped, inner = 1, w.shape[0] // size",
        "mapped, inner = 0, w.shape[0] // size",
        "ops/test_func.py",
    ),
    Fault(
        "the reference takes x < w for x > w",
        "where[block.output] = _code(i, negative=_at(difference, i) < 0)",
        "where[block.output] = _code(i, negative=_at(difference, i) > 0)",
        "ops/test_inf_dist.py",
    ),
    Fault(
        "a side of an integer entry that can win is left out",
        "below = (-lowest > floor[neuron])",
        "below = (lowest > floor[neuron])",
        "ops/test_exact.py",
    ),
    Fault(
        "the moments of Adam share one β",
        "mean.lerp_(grad, 1 - betas[0])",
        "mean.lerp_(grad, 1 - betas[1])",
        "training/test_adam.py",
    ),
    # --- layers
    Fault(
        "the bounds of a dist layer are swapped",
        "Box(near + self.bias, far + self.bias)",
        "Box(far + self.bias, near + self.bias)",
        "nn/test_dist_linear.py",
    ),
    Fault(
        "no slack for the rounding of means",
        "mean_slack(size, k * k, dtype)",
        "torch.zeros_like(size)",
        "nn/test_mean_pool.py",
    ),
    Fault(
        "a lower bound moves inwards",
        "low, high = (lower - apart)",
        "low, high = (lower + apart)",
        "nn/test_mean_pool.py baselines/test_layers.py",
    ),
    Fault(
        "the Lipschitz constant of contrast is rounded to nearest",
        "round_up(1 / self.span())",
        "float(1 / self.span())",
        "nn/test_clip.py",
    ),
    Fault(
        "a mean over the batch passes for a map of boxes",
        'if self.training:\n            raise RuntimeError("in training mode the shift',
        'if False:\n            raise RuntimeError("in training mode the shift',
        "nn/test_mean_shift.py",
    ),
    Fault(
        "a layer does not stretch the error of its input",
        "error * Fraction(layer.lipschitz) + own.error",
        "error + own.error",
        "certificates/test_rounding.py certificates/test_margin.py",
    ),
    # --- certificates
    Fault(
        "no slack for rounding in the margin",
        "gap * DOWN - 4 * error * UP",
        "gap * DOWN - 0 * error * UP",
        "certificates/test_margin.py certificates/test_attacker.py",
    ),
    Fault(
        "the ball of floats is too small",
        "torch.where(near < eps, torch.nextafter(near,",
        "torch.where(near > eps, torch.nextafter(near,",
        "certificates/test_box.py",
    ),
    Fault(
        "a network in training mode is certified", "if module.training:", "if False:", "certificates/test_refusals.py"
    ),
    Fault(
        "pixels that are NaN are accepted",
        "if not (low >= 0 and high <= 1):  # NaN fails too",
        "if low < 0 or high > 1:",
        "certificates/test_refusals.py",
    ),
    Fault(
        "a class that inherits its declarations is accepted",
        "return not inspect.isabstract(cls) and all(",
        "return not inspect.isabstract(cls) or all(",
        "contract certificates/test_refusals.py",
    ),
    Fault(
        "the lines around a tanh are swapped",
        "torch.where(weight > 0, lines.lower_slope, lines.upper_slope)",
        "torch.where(weight > 0, lines.upper_slope, lines.lower_slope)",
        "certificates/test_head_bounds.py",
    ),
    Fault(
        "a radius is not rounded up",
        "return nearest if Fraction(nearest) >= exact else math.nextafter(nearest, math.inf)",
        "return nearest",
        "test_eps.py recipes/test_eps.py",
    ),
    # --- exact networks
    Fault(
        "the entry that attains the floor is pruned",
        "(far > floor).scatter_(1, holder, True)",
        "far > floor",
        "exact/test_prune.py",
    ),
    Fault(
        "a margin of whole levels counts as open",
        "return (gap - 1).clamp_min(0).div(2 * steps",
        "return gap.clamp_min(0).div(2 * steps",
        "exact/test_certificate.py",
    ),
    Fault(
        "the independent checker accepts a tie",
        "bool(np.delete(low, best).min() > high[best])",
        "bool(np.delete(low, best).min() >= high[best])",
        "exact/test_certificate.py",
    ),
    # --- data and files
    Fault(
        "damaged data are accepted",
        'if _checksum(images, labels, classes) != metadata.get("sha256"):',
        "if False:",
        "data/test_store.py",
    ),
    Fault(
        "the channels of CIFAR-10 are mixed up",
        "pixels.transpose(0, 2, 1).reshape(_BATCH, 3072)",
        "pixels.reshape(_BATCH, 3072)",
        "data/test_sets.py",
    ),
    Fault(
        "images are mirrored along the wrong axis",
        "result[mirrored] = result[mirrored, ..., ::-1]",
        "result[mirrored] = result[mirrored, ..., ::-1, :]",
        "data/test_augment.py",
    ),
    Fault("JSON may hold NaN", "parse_constant=_no_number, ", "", "evaluation/test_part.py"),
    # --- rows, training, networks
    Fault(
        "an attack of just the proved size is no violation",
        "by_radius = self.radius > 0 and exact <= Fraction(self.radius)",
        "by_radius = self.radius > 0 and exact < Fraction(self.radius)",
        "evaluation/test_invariants.py",
    ),
    Fault(
        "a batch that was cut off counts as whole",
        r'if not line.endswith(b"\n"):',
        "if False:",
        "evaluation/test_part.py",
    ),
    Fault(
        "the hinge pushes the wrong way",
        "m = z - z.gather(1, y[:, None]) + threshold",
        "m = z - z.gather(1, y[:, None]) - threshold",
        "training/test_losses.py",
    ),
    Fault(
        "p becomes infinite one step late",
        "or epoch >= recipe.e1 + recipe.e2:",
        "or epoch > recipe.e1 + recipe.e2:",
        "training/test_schedule.py",
    ),
    Fault(
        "weights that are not finite are loaded",
        "if tensor.numel() and not all(map(math.isfinite, tensor.aminmax())):",
        "if False:",
        "training/test_files.py",
    ),
    Fault(
        "a file of the zoo is not compared with its card",
        "hashlib.sha256(content).hexdigest()\n    if found != expected:",
        "hashlib.sha256(content).hexdigest()\n    if False:",
        "models/zoo",
    ),
    # --- attacks, exports, estimator, rivals, command line
    Fault(
        "an attack leaves its ball",
        "ball.clip(torch.where(images.isnan(), ",
        "(torch.where(images.isnan(), ",
        "attacks/test_base.py",
    ),
    Fault(
        "no slack for rounding in an ONNX file",
        "b = round_up(4 * Fraction(error)",
        "b = round_up(0 * Fraction(error)",
        "export/test_onnx.py",
    ),
    Fault(
        "a ball in the user's units reaches its nearer end only",
        "far = np.maximum(upper - u, u - lower)",
        "far = np.minimum(upper - u, u - lower)",
        "sklearn/test_scaling.py sklearn/test_proofs.py",
    ),
    Fault(
        "a confidence bound at twice the risk",
        "return tail <= Fraction(alpha)",
        "return tail <= 2 * Fraction(alpha)",
        "baselines/test_smoothing.py",
    ),
    Fault(
        "a ReLU is bounded from the wrong side",
        "weight = up * below[forms.row] + down * above[forms.row]",
        "weight = up * above[forms.row] + down * below[forms.row]",
        "baselines/test_linear.py",
    ),
    Fault(
        "a refused certificate gives exit code 0",
        'raise fail(f"refused: {explain(error)}") from None',
        'raise fail(f"refused: {explain(error)}", 0) from None',
        "exact/test_cli.py",
    ),
    Fault("misuse gives the exit code of a failure", "MISUSED = 2", "MISUSED = 1", "cli/test_help.py"),
]
