"""LSTM layers on the library: in inference one call of torch_ipex::ipex_lstm for all layers."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence


class _LSTM(nn.LSTM):
    """nn.LSTM. Packed sequences, projections and unbatched inputs run in PyTorch."""

    def forward(
        self, input: Tensor | PackedSequence, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor | PackedSequence, tuple[Tensor, Tensor]]:
        if not torch.is_autocast_enabled("cpu"):  # weights that optimize() cast take any input, as under autocast
            input = input.to(self.weight_ih_l0.dtype)
            hx = hx and (hx[0].to(self.weight_ih_l0.dtype), hx[1].to(self.weight_ih_l0.dtype))
        if isinstance(input, PackedSequence) or self.proj_size or input.dim() != 3:
            return super().forward(input, hx)
        batch = input.shape[0 if self.batch_first else 1]
        if hx is None:
            shape = self.num_layers * (2 if self.bidirectional else 1), batch, self.hidden_size
            zeros = torch.zeros(shape, dtype=input.dtype, device=input.device)
            hx = zeros, zeros
        self.check_forward_args(input, hx, None)
        output, h, c = torch.ops.torch_ipex.ipex_lstm(
            input, hx, self._flat_weights, self.bias, self.num_layers, self.dropout, self.training, self.bidirectional,
            self.batch_first,
        )  # fmt: skip
        return output, (h, c)


def replace_lstm_with_ipex_lstm(model: nn.Module) -> None:
    """Converts the nn.LSTM below `model` in place. A model that is itself an LSTM stays."""
    for module in model.modules():
        if module is not model and type(module) is nn.LSTM:
            module.__class__ = _LSTM
