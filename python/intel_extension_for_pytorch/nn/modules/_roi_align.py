"""Regions of feature maps, interpolated to one size: the semantics of `torchvision.ops.roi_align`, without
torchvision."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


def roi_align(
    input: Tensor,
    boxes: Tensor | Sequence[Tensor],
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    aligned: bool = False,
) -> Tensor:
    """[regions, channels, *output_size], in the layout of `input`.

    `boxes` is a tensor [regions, 5] of image, x1, y1, x2, y2, or a tensor [regions, 4] for each image. Each element is
    the mean of sampling_ratio squared samples, or of as many as its part of the box has pixels if the ratio is not
    positive. With a given ratio, `torch.compile` sees the ATen ops of the definition.
    """
    rois = boxes if isinstance(boxes, Tensor) else _with_images(boxes)
    height, width = (output_size, output_size) if isinstance(output_size, int) else output_size
    return torch.ops.torch_ipex.ROIAlign_forward(
        input, rois, spatial_scale, height, width, max(int(sampling_ratio), 0), aligned
    )


def _with_images(boxes: Sequence[Tensor]) -> Tensor:
    numbered = [torch.cat([torch.full_like(box[:, :1], image), box], 1) for image, box in enumerate(boxes)]
    return torch.cat(numbered)


class RoIAlign(nn.Module):
    """See `roi_align`."""

    def __init__(
        self, output_size: int | Sequence[int], spatial_scale: float, sampling_ratio: int, aligned: bool = False
    ) -> None:
        super().__init__()
        self.output_size = output_size
        self.spatial_scale = spatial_scale
        self.sampling_ratio = sampling_ratio
        self.aligned = aligned

    def forward(self, input: Tensor, rois: Tensor | Sequence[Tensor]) -> Tensor:
        return roi_align(input, rois, self.output_size, self.spatial_scale, self.sampling_ratio, self.aligned)

    def extra_repr(self) -> str:
        return (
            f"output_size={self.output_size}, spatial_scale={self.spatial_scale}, "
            f"sampling_ratio={self.sampling_ratio}, aligned={self.aligned}"
        )
