"""RoIAlign against a plain reference in f64, and against torchvision where it is installed."""

import math

import intel_extension_for_pytorch as ipex
import pytest
import torch
from comparison import assert_close_to_eager
from intel_extension_for_pytorch.nn.modules._roi_align import RoIAlign, roi_align

ISAS = [
    pytest.param(isa, marks=pytest.mark.needs_cpu(flag)) for isa, flag in {"avx2": "avx2", "avx512": "avx512f"}.items()
]


def axis_matrix(start, end, pooled, size, ratio, aligned):
    """[pooled, size]: what each bin takes of each pixel along one axis, summed over its samples; and their number."""
    extent = end - start if aligned else max(end - start, 1.0)
    grid = ratio if ratio > 0 else math.ceil(extent / pooled)
    matrix = torch.zeros(pooled, size, dtype=torch.float64)
    for p in range(pooled):
        for i in range(grid):
            at = start + p * extent / pooled + (i + 0.5) * extent / pooled / grid
            if at < -1 or at > size:
                continue
            at = min(max(at, 0.0), size - 1)
            low = int(at)
            matrix[p, low] += 1 - (at - low)
            matrix[p, min(low + 1, size - 1)] += at - low
    return matrix, grid


def reference(images, rois, size, scale, ratio, aligned):
    images = images.double()
    results = [images.sum() * torch.zeros(0, images.shape[1], *size, dtype=torch.float64)]
    for image, *box in rois.double().tolist():
        x1, y1, x2, y2 = (v * scale - (0.5 if aligned else 0.0) for v in box)
        rows, down = axis_matrix(y1, y2, size[0], images.shape[2], ratio, aligned)
        columns, across = axis_matrix(x1, x2, size[1], images.shape[3], ratio, aligned)
        results.append((rows @ images[int(image)] @ columns.T / max(down * across, 1))[None])
    return torch.cat(results)


def make(channels=19, dtype=torch.float32, last=False, regions=9, height=20, width=23):
    images = torch.randn(2, channels, height, width).to(dtype)
    if last:
        images = images.to(memory_format=torch.channels_last)
    corners = torch.rand(regions, 2) * torch.tensor([80.0, 70.0]) - 10  # some lie outside
    boxes = torch.cat([torch.randint(0, 2, (regions, 1)), corners, corners + torch.rand(regions, 2) * 60 - 2], 1)
    # Multiples of 1/8 keep positions exact, so that f32 and f64 take the same samples.
    rois = (boxes * 8).round() / 8
    return images.requires_grad_(), rois.to(torch.float64 if dtype == torch.float64 else torch.float32)


def check(images, rois, size, scale, ratio, aligned):
    dtype = images.dtype
    ours = roi_align(images, rois, size, scale, ratio, aligned)
    exact = images.detach().double().requires_grad_()
    expected = reference(exact, rois, size, scale, ratio, aligned)
    weight = torch.randn(expected.shape).to(dtype)
    expected.backward(weight.double())
    ours.backward(weight)
    tolerance = {torch.float64: 1e-10, torch.float32: 2e-5, torch.bfloat16: 1.6e-2, torch.float16: 2e-3}[dtype]
    torch.testing.assert_close(ours, expected.to(dtype), rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(images.grad, exact.grad.to(dtype), rtol=tolerance, atol=tolerance)
    return ours


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("ratio", [-1, 1, 2, 3])
def test_values_and_gradients(ratio, aligned, last, dtype, isa, monkeypatch):
    monkeypatch.setenv("IPEX_TARGET", isa)
    images, rois = make(dtype=dtype, last=last)
    ours = check(images, rois, (5, 7), 0.25, ratio, aligned)
    assert ours.is_contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)
    assert images.grad.stride() == images.stride()


@pytest.mark.parametrize("channels", [1, 3, 8, 64, 100])
@pytest.mark.parametrize("regions", [0, 1, 40])  # few and many: two ways to read contiguous images
def test_sizes(regions, channels):
    images, rois = make(channels, regions=regions)
    check(images, rois, (2, 3), 0.3125, 2, True)


def test_samples_at_the_edges():
    """Positions of exactly -1, the size, and beyond."""
    images = torch.arange(12.0).reshape(1, 1, 3, 4).requires_grad_()
    rois = torch.tensor([[0, -1.5, -1.5, -0.5, -0.5], [0, 3.5, 2.5, 4.5, 3.5], [0, 4, 3, 6, 5], [0, -9, -9, 20, 20]])
    for ratio in (1, 2, 4):
        for aligned in (False, True):
            check(images, rois, (2, 2), 1.0, ratio, aligned)
            images.grad = None


def test_bfloat16_images_keep_the_precision_of_boxes():
    images, _ = make(dtype=torch.bfloat16, width=23)
    rois = torch.tensor([[0, 61.3, 50.7, 77.9, 66.1]])
    assert rois.dtype == torch.float32
    check(images, rois, (7, 7), 0.25, 2, True)


@pytest.mark.parametrize("last", [False, True])
def test_threads_do_not_change_results(last):
    threads, runs = torch.get_num_threads(), []
    images, rois = make(70, last=last, regions=50)
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        images.grad = None
        result = roi_align(images, rois, 7, 0.25, 2)
        result.pow(2).sum().backward()
        runs.append([result, images.grad])
    torch.set_num_threads(threads)
    assert all(torch.equal(a, b) for run in runs[1:] for a, b in zip(runs[0], run, strict=True))


def test_module_and_lists_of_boxes():
    images, _ = make()
    boxes = [torch.tensor([[0.0, 0, 30, 40], [5, 5, 9, 9]]), torch.zeros(0, 4)]
    module = RoIAlign((3, 4), 0.5, 2, aligned=True)
    assert module(images, boxes).shape == (2, 19, 3, 4)
    rois = torch.cat([torch.zeros(2, 1), boxes[0]], 1)
    assert torch.equal(module(images, boxes), module(images, rois))
    assert repr(module) == "RoIAlign(output_size=(3, 4), spatial_scale=0.5, sampling_ratio=2, aligned=True)"
    assert ipex.nn.modules.RoIAlign is RoIAlign


def test_autocast():
    images, rois = make()
    with torch.autocast("cpu", torch.bfloat16):
        result = roi_align(images, rois, 3, 0.25, 2)
    assert result.dtype == torch.bfloat16
    assert torch.equal(result, roi_align(images.bfloat16(), rois, 3, 0.25, 2))


def test_errors():
    images, rois = make()
    with pytest.raises(IndexError, match="images from 0 to 2, but there are 2"):
        roi_align(images, torch.tensor([[0.0, 0, 0, 1, 1], [2, 0, 0, 1, 1]]), 2)
    with pytest.raises(RuntimeError, match=r"regions \[count, 5\]"):
        roi_align(images, rois[:, :4], 2)
    with pytest.raises(RuntimeError, match=r"\[batch, channels, height, width\]"):
        roi_align(images[0], rois, 2)
    with pytest.raises(RuntimeError, match="positive output size"):
        roi_align(images, rois, 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("aligned", [False, True])
def test_compiled(aligned, dtype, compiled, strict):
    images, rois = make(dtype=dtype)
    run = compiled(roi_align, fullgraph=True)
    ours = run(images, rois, (3, 4), 0.25, 2, aligned)
    ours.float().pow(2).sum().backward()
    grad, images.grad = images.grad, None
    expected = roi_align(images, rois, (3, 4), 0.25, 2, aligned)
    expected.float().pow(2).sum().backward()
    assert_close_to_eager(ours, expected, scale=4.0)
    tolerance = 1e-4 if dtype == torch.float32 else 0.1  # ATen adds the gradients of pixels in bf16
    torch.testing.assert_close(grad, images.grad, rtol=tolerance, atol=tolerance)


def test_compiled_with_an_adaptive_ratio(compiled):
    images, rois = make(last=True)
    run = compiled(roi_align, fullgraph=True)
    result = run(images, rois, 3, 0.25, -1, True)
    result.pow(2).sum().backward()
    grad, images.grad = images.grad, None
    expected = roi_align(images, rois, 3, 0.25, -1, True)
    expected.pow(2).sum().backward()
    assert torch.equal(result, expected)
    assert torch.equal(grad, images.grad)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("ratio", [-1, 2])
def test_torchvision(ratio, aligned, dtype):
    torchvision = pytest.importorskip("torchvision")
    images, rois = make(dtype=dtype, regions=50)
    arguments = (images, rois, (7, 7), 0.25, ratio, aligned)
    expected = torchvision.ops.roi_align(*arguments)
    weight = torch.randn_like(expected)
    (theirs,) = torch.autograd.grad(expected, images, weight)
    ours = roi_align(*arguments)
    (grad,) = torch.autograd.grad(ours, images, weight)
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(grad, theirs, rtol=1e-4, atol=1e-4)
