"""Compares torchvision's detection models and operators with eager: detections, losses and gradients.

Dynamo breaks the graph of a detection model where a size depends on data, for example at `nms`, which therefore runs
between graphs. `roi_align` and its backward are custom operators: the compiled graph calls them. The rest is native.
"""

import copy

import native_share
import pytest
import torch
from comparison import (
    TOLERANCES,
    apart_by_rounding,
    assert_as_near_as_eager,
    assert_close_to_eager,
    assert_error_within,
    assert_near_in_norm,
)
from conftest import BACKEND
from test_models import copy_in, in_dtype
from zoo_detection import DETECTORS, MISSING, images_and_targets

if MISSING:
    pytest.skip(MISSING, allow_module_level=True)

from torchvision import ops

DRAWS = 6
detectors = pytest.mark.parametrize("name", DETECTORS)


# What compiled graphs call: torchvision's operators, a write through a mask, and the draw of an image's size.
CALLED = {f"torchvision::{name}.default" for name in ("nms", "roi_align", "_roi_align_backward")}
CALLED |= {"aten::index_put.default", "aten::uniform.default"}


@pytest.fixture(autouse=True)
def nothing_runs_eagerly(request, record_property):
    """Fails if a graph runs eagerly, or if a graph of a detection model calls another operator than those above."""
    if BACKEND != "ipex":
        yield
        return
    from intel_extension_for_pytorch.compiler.records import record_reports

    with record_reports() as reports, native_share.nothing_runs_eagerly(record_property):
        yield
    detector = request.node.callspec.params.get("name") in DETECTORS
    if detector and "fp64" not in request.node.originalname:  # ATen convolves fp64
        called = {step["name"] for report in reports for step in report["steps"] if step["kind"] == "extern"}
        assert called <= CALLED


def build(name, *, training=False):
    torch.manual_seed(0)
    return DETECTORS[name]().train(training)


def draw(seed):
    torch.manual_seed(seed)
    return images_and_targets()


def assert_same_detections(ours, eager, scale=20.0):
    """Requires one of our detections for each of eager's, with its label, score, box and mask.

    Detections are sorted by score, so that those with almost equal scores may change places.
    """
    assert len(ours) == len(eager)
    for a, b in zip(ours, eager, strict=True):
        assert a.keys() == b.keys() and len(a["boxes"]) == len(b["boxes"]) > 0
        # The order of pairs by label, then box: almost equal scores do not decide it.
        near = (a["scores"][:, None] - b["scores"]).abs() < 1e-4
        near &= a["labels"][:, None] == b["labels"]
        distance = (a["boxes"][:, None] - b["boxes"]).abs().amax(-1).masked_fill(~near, torch.inf)
        order = distance.argmin(0)
        assert len(order.unique()) == len(order), "two detections of eager have one counterpart"
        assert_close_to_eager({key: a[key][order] for key in b}, b, scale=scale)


@pytest.mark.nightly
@detectors
def test_inference_fp32(name, compiled):
    model = build(name)
    run = compiled(model)
    with torch.no_grad():
        for seed in range(2):
            images, _ = draw(seed)
            assert_same_detections(run(images), model(images))


class Dense(torch.nn.Module):
    """The part of a detection model without choices: features and what the heads predict for each anchor."""

    def __init__(self, model):
        super().__init__()
        self.backbone = model.backbone
        self.head = model.rpn.head if hasattr(model, "rpn") else model.head

    def forward(self, images):
        features = list(self.backbone(images).values())
        return features, self.head(features)


@pytest.mark.nightly
@detectors
def test_dense_part_bf16(name, compiled):
    """Without the choice of boxes, which rounding changes, so that errors can be compared."""
    low = copy_in(Dense(build(name)), torch.bfloat16)
    exact = copy_in(low, torch.float64)
    run = compiled(low, fullgraph=True)
    ours, eager, reference = [], [], []
    with torch.no_grad():
        for seed in range(DRAWS):
            torch.manual_seed(seed)
            images = torch.randn(2, 3, 96, 128, dtype=torch.bfloat16)
            reference.append(exact(images.double()))
            eager.append(low(images))
            ours.append(run(images))
    assert_error_within(ours, eager, reference)


def distance_of_detections(detections, reference):
    """The mean of 1 - IoU between each detection of the reference and the nearest one with its label. Boxes outside the
    image are clipped to boxes without area: two of them overlap fully."""
    distances = []
    for a, b in zip(detections, reference, strict=True):
        overlap = ops.box_iou(a["boxes"].double(), b["boxes"]).nan_to_num(1.0)
        overlap[a["labels"][:, None] != b["labels"]] = 0
        distances.append(1 - overlap.amax(0))
    return torch.cat(distances).mean().item()


@pytest.mark.nightly
@detectors
def test_inference_autocast(name, compiled):
    """Detections in bf16: as near to those in fp64 as eager's are."""
    model = build(name)
    exact, run = copy_in(model, torch.float64), compiled(model)
    ours, eager = [], []
    with torch.no_grad():
        for seed in range(DRAWS):
            images, _ = draw(seed)
            reference = exact(in_dtype(images, torch.float64))
            with torch.autocast("cpu", torch.bfloat16):
                eager.append(distance_of_detections(model(images), reference))
                ours.append(distance_of_detections(run(images), reference))
    assert sum(ours) <= 1.1 * sum(eager), f"distances {ours}, eager {eager}"


def train_step(run, model, images, targets):
    """Runs forward and backward; returns the losses and the gradients of all parameters."""
    model.zero_grad(set_to_none=True)
    torch.manual_seed(7)
    losses = run(images, [dict(target) for target in targets])
    sum(losses.values()).backward()
    gradients = {key: p.grad for key, p in model.named_parameters() if p.grad is not None}
    assert gradients
    return {key: loss.detach() for key, loss in losses.items()}, gradients


@pytest.mark.nightly
@detectors
def test_training_fp64(name, compiled):
    model = build(name, training=True).double()
    twin = copy.deepcopy(model)
    batch = in_dtype(draw(0), torch.float64)
    eager_losses, eager = train_step(model, model, *batch)
    losses, ours = train_step(compiled(twin), twin, *batch)
    assert_close_to_eager(losses, eager_losses)
    assert ours.keys() == eager.keys()
    assert_near_in_norm(list(ours.values()), list(eager.values()), bound=TOLERANCES[torch.float64][0])


@pytest.mark.nightly
@detectors
def test_training_fp32(name, compiled):
    model = build(name, training=True)
    twin, exact = copy.deepcopy(model), copy_in(model, torch.float64)
    images, targets = draw(0)
    reference = train_step(exact, exact, *in_dtype((images, targets), torch.float64))[1]
    eager_losses, eager = train_step(model, model, images, targets)
    losses, ours = train_step(compiled(twin), twin, images, targets)
    assert losses.keys() == eager_losses.keys() and ours.keys() == eager.keys() == reference.keys()
    for key, loss in losses.items():
        torch.testing.assert_close(loss, eager_losses[key], rtol=1e-4, atol=1e-4)
    runs = [eager, *(train_step(model, model, moved, targets)[1] for moved in apart_by_rounding(images))]
    assert_as_near_as_eager(ours, runs, reference)


@pytest.mark.nightly
@detectors
def test_training_bf16(name, compiled):
    model = build(name, training=True)
    twin, exact = copy.deepcopy(model), copy_in(model, torch.float64)
    run = compiled(twin)

    def autocast(run):
        def step(*args):
            with torch.autocast("cpu", torch.bfloat16):
                return run(*args)

        return step

    ours, eager, reference = [], [], []
    for seed in range(DRAWS):
        batch = draw(seed)
        for results, step in (
            (reference, train_step(exact, exact, *in_dtype(batch, torch.float64))),
            (eager, train_step(autocast(model), model, *batch)),
            (ours, train_step(autocast(run), twin, *batch)),
        ):
            results.append(step)
    for part in range(2):  # losses, gradients
        assert_error_within(*([result[part] for result in results] for results in (ours, eager, reference)))


# ---- torchvision's operators ----


def boxes_of(count, height, width):
    corner = torch.rand(count, 2) * torch.tensor([width, height]) * 0.7
    return torch.cat([corner, corner + 1 + torch.rand(count, 2) * torch.tensor([width, height]) * 0.3], -1)


def rois():
    return torch.cat([torch.tensor([[0.0], [1.0], [1.0]]), boxes_of(3, 16, 20) * 2], 1)


OPERATORS = {
    "roi_align": lambda x, w: ops.roi_align(x * 2, rois(), (3, 4), 0.5, 2, True),
    "roi_align_adaptive": lambda x, w: ops.roi_align(x * 2, rois(), (3, 4), 0.5),
    "roi_pool": lambda x, w: ops.roi_pool(x * 2, rois(), (3, 4), 0.5),
    "ps_roi_align": lambda x, w: ops.ps_roi_align(x * 2, rois(), (2, 2), 0.5, 2),
    "ps_roi_pool": lambda x, w: ops.ps_roi_pool(x * 2, rois(), (2, 2), 0.5),
    "deform_conv2d": lambda x, w: ops.deform_conv2d(x * 2, x[:, :4].repeat(1, 2, 1, 1)[:, :8, 1:, 1:] * 0.3, w),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators(name, compiled):
    """Custom operators of a graph, with gradients; what is around them is native."""

    def function(x, w):
        torch.manual_seed(3)
        return OPERATORS[name](x, w).tanh()

    torch.manual_seed(0)
    x, w = torch.randn(2, 8, 16, 20), torch.randn(5, 8, 2, 2)
    results = []
    for run in (function, compiled(function)):
        leaves = [t.clone().requires_grad_() for t in (x, w)]
        result = run(*leaves)
        result.square().sum().backward()
        results.append((result, [leaf.grad for leaf in leaves if leaf.grad is not None]))
    assert_close_to_eager(results[1], results[0], scale=10.0)


@pytest.mark.parametrize("inside", [False, True])
def test_nms(inside, compiled):
    """Between two graphs or, where Dynamo is told to capture sizes that depend on data, inside of one."""

    def function(boxes, logits):
        scores = logits.sigmoid()
        keep = ops.nms(boxes, scores, 0.3)
        return boxes[keep] * 2, scores[keep]

    run = compiled(function, fullgraph=inside)
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=inside):
        for count in (40, 40, 60):
            boxes, logits = boxes_of(count, 64, 64), torch.randn(count)
            assert_close_to_eager(run(boxes, logits), function(boxes, logits))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_frozen_batch_norm_is_native(dtype, compiled, strict):
    torch.manual_seed(0)
    norm = ops.FrozenBatchNorm2d(8)
    for buffer in norm.buffers():
        buffer.uniform_(0.5, 1.5)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), norm, torch.nn.ReLU()).to(dtype)
    twin, exact = copy.deepcopy(model), copy_in(model, torch.float64)
    run = compiled(twin, fullgraph=True)

    def results(run, model, x):
        model.zero_grad()
        output = run(x)
        output.sum().backward()
        return [output, *(p.grad for p in model.parameters())]

    ours, eager, reference = [], [], []
    for _ in range(2 * DRAWS):  # the sign of a few of the inputs of ReLU is luck in bf16
        x = torch.randn(2, 3, 12, 12, dtype=dtype)
        ours.append(results(run, twin, x))
        eager.append(results(model, model, x))
        reference.append(results(exact, exact, x.double()))
    if dtype == torch.bfloat16:
        assert_error_within(ours, eager, reference)
    else:
        assert_near_in_norm(ours, eager)
