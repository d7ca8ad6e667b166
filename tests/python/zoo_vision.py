"""Models of torchvision and timm for the nightly run with a PyTorch for which both are installed (`make vision`).

The architectures are the real ones with random weights: the smallest member of each family, on small images. Detection
models are in `zoo_detection.py`.
"""

from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec

import torch


@dataclass(frozen=True)
class VisionModel:
    """A model by its name in torchvision or timm, with random weights, and inputs for it."""

    package: str
    model: str
    size: tuple[int, ...] = (64, 64)  # of the images, or of the frames of a video
    batch: int = 4
    options: dict = field(default_factory=dict)

    @property
    def name(self):
        return f"{self.package}_{self.model}"

    @property
    def missing(self):
        """Why the model cannot be made here, or None."""
        if find_spec(self.package) is None:
            return f"{self.package} is not installed"
        return None

    def __call__(self):
        if self.package == "torchvision":
            made = import_module("torchvision.models").get_model(self.model, weights=None, **self.options)
        else:
            made = import_module("timm").create_model(self.model, pretrained=False, **self.options)
        inputs = self.inputs()
        return with_statistics_of(with_random_constants(made), inputs), inputs

    def inputs(self):
        return (torch.randn(self.batch, 3, *self.size),)


def with_random_constants(model):
    """The model with random values in place of every constant that a parameter starts with.

    Many models start with blocks that contribute nothing: the scale of a branch is 0 or 1e-6, or a head is 0. Then the
    results would not depend on most of the model.
    """
    with torch.no_grad():
        for parameter in model.parameters():
            first = parameter.flatten()[0]
            if (parameter != first).any():
                continue
            if first > 0 or parameter.numel() == 1:
                parameter.uniform_(0.5, 1.0)  # scales
            else:
                parameter.normal_(0.0, 0.1 if parameter.dim() == 1 else 0.02)  # shifts, heads
    return model


def with_statistics_of(model, inputs):
    """The model with the running statistics of one batch in its batch norms.

    With the statistics that a model starts with, activations become smaller from layer to layer, until the results
    depend on the shifts only.
    """
    norms = [m for m in model.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)]
    if not norms:
        return model
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 1.0
    model.train()
    with torch.no_grad():
        model(*inputs)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    return model


def torchvision(model, size=64, batch=4, **options):
    return VisionModel("torchvision", model, size if isinstance(size, tuple) else (size, size), batch, options)


def timm(model, size=64, batch=4, **options):
    return VisionModel("timm", model, (size, size), batch, options)


# Transformers are told the size of their images. The sizes leave the last stage of a network with batch norms some
# values for each channel: statistics of few values make gradients that depend on rounding.
TORCHVISION = (
    torchvision("resnet50"),
    torchvision("swin_t"),
    torchvision("swin_v2_t"),
    torchvision("vit_b_16", batch=2, image_size=64),
    torchvision("efficientnet_b0"),
    torchvision("efficientnet_v2_s"),
    torchvision("convnext_tiny"),
    torchvision("mobilenet_v3_small", batch=8),
    torchvision("densenet121"),
    torchvision("regnet_y_400mf"),
    torchvision("shufflenet_v2_x0_5", batch=8),
    torchvision("googlenet", init_weights=True, aux_logits=False),
    torchvision("deeplabv3_mobilenet_v3_large", weights_backbone=None),
    torchvision("fcn_resnet50", weights_backbone=None),
    torchvision("r3d_18", size=(4, 32, 32), batch=2),
)  # fmt: skip

# The families of timm that are downloaded most.
TIMM = (
    timm("resnet50"),
    timm("resnet18"),
    timm("mobilenetv3_small_100", batch=8),
    timm("mobilenetv4_conv_small", batch=8),
    timm("efficientnet_b0"),
    timm("tf_efficientnetv2_b0"),
    timm("convnext_atto"),
    timm("convnextv2_atto"),
    timm("vit_tiny_patch16_224", img_size=64),
    timm("vit_small_patch14_reg4_dinov2", size=56, batch=2, img_size=56),
    timm("vit_base_patch16_siglip_224", batch=2, img_size=64),
    timm("vit_xsmall_patch16_clip_224", img_size=64),
    timm("deit_tiny_distilled_patch16_224", img_size=64),
    timm("beit_base_patch16_224", batch=2, img_size=64, head_init_scale=1.0),
    timm("eva02_tiny_patch14_224", size=56, img_size=56),
    timm("swin_tiny_patch4_window7_224", img_size=64, window_size=4),
    timm("mixer_s32_224", size=96, img_size=96),
    timm("maxvit_pico_rw_256", img_size=64),
    timm("coatnet_pico_rw_224", img_size=64),
    timm("levit_128s", size=128, img_size=128),
    timm("eca_nfnet_l0"),
    timm("repvgg_a0"),
    timm("regnety_002"),
    timm("seresnext26d_32x4d"),
    timm("resnetv2_50x1_bit"),
    timm("hgnetv2_b0"),
    timm("fastvit_t8"),
    timm("tiny_vit_5m_224", size=224, batch=2),
)  # fmt: skip

FAMILIES = {model.name: model for model in (*TORCHVISION, *TIMM)}
