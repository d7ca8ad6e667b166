"""ipex.llm.optimize: the class and `generate` stay, and the forward pass is compiled."""

import intel_extension_for_pytorch as ipex
import pytest
import torch
import transformers


def llama():
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).eval()


@pytest.mark.parametrize("inplace", [False, True])
def test_generate(inplace, strict):
    model, ids = llama(), torch.randint(0, 64, (2, 5), generator=torch.Generator().manual_seed(1))
    wanted = model.generate(ids, max_new_tokens=8, do_sample=False)
    with ipex.record_reports() as reports:
        ours = ipex.llm.optimize(model, inplace=inplace)
        assert torch.equal(ours.generate(ids, max_new_tokens=8, do_sample=False), wanted)
    assert reports and type(ours) is type(model) and (ours is model) == inplace


def test_dtype():
    ours = ipex.llm.optimize(llama(), dtype=torch.bfloat16)
    assert all(p.dtype is torch.bfloat16 for p in ours.parameters())
    ids = torch.randint(0, 64, (1, 4))
    with torch.no_grad():
        exact, eager, got = llama().double()(ids).logits, llama().bfloat16()(ids).logits, ours(ids).logits
    assert (got - exact).norm() <= 1.1 * (eager - exact).norm()


def test_what_is_refused(caplog):
    model = llama()
    with pytest.raises(NotImplementedError, match="quantization is not supported"):
        ipex.llm.optimize(model, quantization_config=object())
    with pytest.raises(ValueError, match="device"):
        ipex.llm.optimize(model, device="xpu")
    assert ipex.llm.optimize(model.train()) == (model, None)
    assert "[NotSupported]llm.optimize is for inference" in caplog.text
    assert ipex.optimize_transformers is not None
