"""Detection models of torchvision with random weights, and small images with targets for them.

Their backbones have FrozenBatchNorm2d, as with the weights that torchvision offers. Sampling of boxes is off: every
proposal counts, so that rounding does not change which ones are drawn.
"""

from functools import partial
from importlib import import_module
from importlib.util import find_spec

import torch
from torch import nn
from zoo_vision import with_random_constants, with_statistics_of

CLASSES = 7
IMAGES = ((96, 128), (80, 112))
SIZES = dict(num_classes=CLASSES, min_size=96, max_size=128)
EVERY_BOX = dict(rpn_batch_size_per_image=10**5, box_batch_size_per_image=10**5, rpn_pre_nms_top_n_train=200,
                 rpn_post_nms_top_n_train=50, rpn_pre_nms_top_n_test=200, rpn_post_nms_top_n_test=50)  # fmt: skip
MISSING = None if find_spec("torchvision") else "torchvision is not installed"


def of_torchvision(module):
    return import_module(f"torchvision.{module}")


def backbone(**options):
    """ResNet-50 with a feature pyramid, and frozen batch norms with the statistics of a batch.

    Each block changes its input little, as in trained networks. Otherwise errors of rounding grow from block to block.
    """
    make = partial(of_torchvision("models.detection.backbone_utils").resnet_fpn_backbone,
                   backbone_name="resnet50", weights=None, trainable_layers=3)  # fmt: skip
    norms = with_random_constants(make(norm_layer=nn.BatchNorm2d, **options))
    with torch.no_grad():
        for name, parameter in norms.named_parameters():
            if name.endswith("bn3.weight"):
                parameter.mul_(0.2)
    with_statistics_of(norms, (torch.randn(2, 3, *IMAGES[0]),))
    frozen = make(norm_layer=of_torchvision("ops").FrozenBatchNorm2d, **options)
    frozen.load_state_dict(norms.state_dict(), strict=False)
    return frozen


def with_distinct_scores(model, *heads):
    """The model with weights for its heads that give distinct scores, and boxes of many shapes.

    They start so small that all scores are equal, and the order of equal scores depends on rounding. Here, each layer
    is scaled so that its outputs for some images have a given standard deviation.
    """
    layers = {
        layer: 0.3 if "bbox" in name else 1.0
        for head in heads
        for name, layer in head.named_modules()
        if isinstance(layer, nn.Conv2d | nn.Linear)
    }
    waiting = dict(layers)

    def scale(layer, _, output):
        if layer not in waiting:
            return output
        factor = waiting.pop(layer) / output.std()
        layer.weight.mul_(factor)
        return output * factor

    hooks = [layer.register_forward_hook(scale) for layer in layers]
    model.eval()
    with torch.no_grad():
        for layer in layers:
            nn.init.normal_(layer.weight)
            if layer.bias is not None:
                layer.bias.zero_()
        model(images_and_targets()[0])
        for layer, hook in zip(layers, hooks, strict=True):
            hook.remove()
            if layer.bias is not None:
                layer.bias.normal_(0.0, 0.1)
    assert not waiting
    return model


def faster_rcnn():
    model = of_torchvision("models.detection").FasterRCNN(backbone(), **SIZES, **EVERY_BOX)
    return with_distinct_scores(model, model.rpn, model.roi_heads)


def mask_rcnn():
    model = of_torchvision("models.detection").MaskRCNN(backbone(), **SIZES, **EVERY_BOX)
    return with_distinct_scores(model, model.rpn, model.roi_heads)


def pyramid_with_more_levels():
    more = of_torchvision("ops.feature_pyramid_network").LastLevelP6P7
    return backbone(returned_layers=[2, 3, 4], extra_blocks=more(256, 256))


def retinanet():
    model = of_torchvision("models.detection").RetinaNet(pyramid_with_more_levels(), **SIZES)
    return with_distinct_scores(model, model.head)


def fcos():
    model = of_torchvision("models.detection").FCOS(pyramid_with_more_levels(), **SIZES)
    return with_distinct_scores(model, model.head)


def ssdlite():
    make = of_torchvision("models.detection").ssdlite320_mobilenet_v3_large
    model = with_random_constants(make(weights=None, weights_backbone=None, num_classes=CLASSES))
    with_statistics_of(model.backbone, (torch.randn(2, 3, 320, 320),))
    return with_distinct_scores(model, model.head)


def images_and_targets():
    """Images of two sizes, and boxes, labels and masks of three objects in each."""
    images, targets = [], []
    for height, width in IMAGES:
        images.append(torch.rand(3, height, width))
        corner = torch.rand(3, 2) * torch.tensor([width, height]) * 0.5
        extent = (0.2 + 0.3 * torch.rand(3, 2)) * torch.tensor([width, height])
        boxes = torch.cat([corner, corner + extent], -1)
        masks = torch.zeros(3, height, width, dtype=torch.uint8)
        for mask, (left, top, right, bottom) in zip(masks, boxes.int().tolist(), strict=True):
            mask[top:bottom, left:right] = 1
        targets.append({"boxes": boxes, "labels": torch.randint(1, CLASSES, (3,)), "masks": masks})
    return images, targets


DETECTORS = {build.__name__: build for build in (faster_rcnn, mask_rcnn, retinanet, fcos, ssdlite)}
