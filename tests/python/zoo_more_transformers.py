"""More families of `transformers` for the nightly run, with tiny configurations and random weights: encoders, decoders
with other positions, norms and mixers, vision backbones, detection, audio, multimodal models, time series."""

import torch
import transformers as hf
from zoo_transformers import (
    BATCH,
    DECODER,
    ENCODER,
    IMAGE,
    LENGTH,
    VOCAB,
    image_inputs,
    seq2seq_inputs,
    text_inputs,
    tokens,
)

SEQ2SEQ = dict(vocab_size=VOCAB, d_model=32, encoder_layers=2, decoder_layers=2, encoder_ffn_dim=64, decoder_ffn_dim=64,
               encoder_attention_heads=4, decoder_attention_heads=4, max_position_embeddings=40,
               use_cache=False)  # fmt: skip


# ---- encoders ----


def camembert():
    return hf.CamembertForMaskedLM(hf.CamembertConfig(**ENCODER, pad_token_id=1)), text_inputs()


def xlm_roberta():
    return hf.XLMRobertaModel(hf.XLMRobertaConfig(**ENCODER, pad_token_id=1)), text_inputs()


def mobilebert():
    config = hf.MobileBertConfig(**ENCODER, intra_bottleneck_size=16, embedding_size=16)
    return hf.MobileBertModel(config), text_inputs()


def squeezebert():
    return hf.SqueezeBertModel(hf.SqueezeBertConfig(**ENCODER, embedding_size=32)), text_inputs()


def layoutlm():
    boxes = torch.randint(0, 30, (BATCH, LENGTH, 2))
    config = hf.LayoutLMConfig(**ENCODER, max_2d_position_embeddings=64)
    return hf.LayoutLMModel(config), {**text_inputs(), "bbox": torch.cat([boxes, boxes + 20], -1)}


def longformer():
    config = hf.LongformerConfig(**ENCODER, attention_window=4, pad_token_id=1)
    return hf.LongformerModel(config), text_inputs()


def modernbert():
    config = hf.ModernBertConfig(**ENCODER, pad_token_id=0, local_attention=4, global_attn_every_n_layers=2)
    return hf.ModernBertModel(config), text_inputs()


def roformer():
    return hf.RoFormerModel(hf.RoFormerConfig(**ENCODER, embedding_size=32)), text_inputs()


def xlnet():
    config = hf.XLNetConfig(vocab_size=VOCAB, d_model=32, n_layer=2, n_head=4, d_inner=64)
    return hf.XLNetModel(config), text_inputs()


def canine():
    config = hf.CanineConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
                             max_position_embeddings=64, downsampling_rate=4, local_transformer_stride=8,
                             num_hash_buckets=64)  # fmt: skip
    return hf.CanineModel(config), {"input_ids": tokens(16)}


# ---- decoders ----


def bloom():
    config = hf.BloomConfig(vocab_size=VOCAB, hidden_size=32, n_layer=2, n_head=4, use_cache=False)
    return hf.BloomForCausalLM(config), text_inputs()


def codegen():
    config = hf.CodeGenConfig(vocab_size=VOCAB, n_positions=40, n_ctx=40, n_embd=32, n_layer=2, n_head=4, rotary_dim=4,
                              use_cache=False)  # fmt: skip
    return hf.CodeGenForCausalLM(config), text_inputs()


def cohere():
    return hf.CohereForCausalLM(hf.CohereConfig(**DECODER)), text_inputs()


def falcon():
    config = hf.FalconConfig(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                             use_cache=False)  # fmt: skip
    return hf.FalconForCausalLM(config), text_inputs()


def gemma2():
    return hf.Gemma2ForCausalLM(hf.Gemma2Config(**DECODER, head_dim=8, sliding_window=8)), text_inputs()


def gpt_neo():
    config = hf.GPTNeoConfig(vocab_size=VOCAB, hidden_size=32, num_layers=2, num_heads=4, window_size=8,
                             attention_types=[[["global", "local"], 1]], max_position_embeddings=40,
                             use_cache=False)  # fmt: skip
    return hf.GPTNeoForCausalLM(config), text_inputs()


def gptj():
    config = hf.GPTJConfig(vocab_size=VOCAB, n_positions=40, n_embd=32, n_layer=2, n_head=4, rotary_dim=4,
                           use_cache=False)  # fmt: skip
    return hf.GPTJForCausalLM(config), text_inputs()


def granite():
    return hf.GraniteForCausalLM(hf.GraniteConfig(**DECODER)), text_inputs()


def mamba():
    config = hf.MambaConfig(vocab_size=VOCAB, hidden_size=32, state_size=4, num_hidden_layers=2, use_cache=False)
    return hf.MambaModel(config), {"input_ids": tokens()}


def mpt():
    config = hf.MptConfig(vocab_size=VOCAB, d_model=32, n_layers=2, n_heads=4, max_seq_len=40, use_cache=False)
    return hf.MptForCausalLM(config), text_inputs()


def olmo2():
    return hf.Olmo2ForCausalLM(hf.Olmo2Config(**DECODER)), text_inputs()


def qwen3():
    return hf.Qwen3ForCausalLM(hf.Qwen3Config(**DECODER, head_dim=8)), text_inputs()


def stablelm():
    return hf.StableLmForCausalLM(hf.StableLmConfig(**DECODER)), text_inputs()


def starcoder2():
    return hf.Starcoder2ForCausalLM(hf.Starcoder2Config(**DECODER)), text_inputs()


# ---- both ----


def pegasus():
    return hf.PegasusModel(hf.PegasusConfig(**SEQ2SEQ)), seq2seq_inputs()


def marian():
    config = hf.MarianConfig(**SEQ2SEQ, pad_token_id=1, decoder_start_token_id=2)
    return hf.MarianModel(config), seq2seq_inputs()


def mbart():
    return hf.MBartModel(hf.MBartConfig(**SEQ2SEQ)), seq2seq_inputs()


def blenderbot():
    return hf.BlenderbotModel(hf.BlenderbotConfig(**SEQ2SEQ)), seq2seq_inputs()


def m2m_100():
    return hf.M2M100Model(hf.M2M100Config(**SEQ2SEQ)), seq2seq_inputs()


# ---- vision ----


def convnextv2():
    config = hf.ConvNextV2Config(hidden_sizes=[16, 32], depths=[1, 2], num_stages=2, num_labels=32)
    return hf.ConvNextV2ForImageClassification(config), image_inputs()


def dinov2():
    return hf.Dinov2Model(hf.Dinov2Config(**IMAGE)), image_inputs()


def dpt():
    config = hf.DPTConfig(**{**IMAGE, "num_hidden_layers": 4}, backbone_out_indices=[0, 1, 2, 3],
                          neck_hidden_sizes=[8, 8, 16, 16], fusion_hidden_size=16, num_labels=8)  # fmt: skip
    return hf.DPTForDepthEstimation(config), image_inputs()


def efficientnet():
    config = hf.EfficientNetConfig(image_size=32, width_coefficient=0.25, depth_coefficient=0.25, hidden_dim=320,
                                   num_labels=32)  # fmt: skip
    return hf.EfficientNetForImageClassification(config), image_inputs(64, batch=8)


def focalnet():
    config = hf.FocalNetConfig(image_size=32, patch_size=2, embed_dim=16, depths=[1, 1], focal_levels=[2, 2],
                               focal_windows=[3, 3])  # fmt: skip
    return hf.FocalNetModel(config), image_inputs()


def levit():
    config = hf.LevitConfig(image_size=64, hidden_sizes=[16, 24, 32], num_attention_heads=[1, 2, 2], depths=[1, 1, 1],
                            key_dim=[8, 8, 8], num_labels=32)  # fmt: skip
    return hf.LevitForImageClassification(config), image_inputs(64, batch=8)


def mobilevit():
    config = hf.MobileViTConfig(image_size=64, hidden_sizes=[16, 24, 32], neck_hidden_sizes=[8, 8, 16, 16, 24, 24, 32],
                                num_attention_heads=2, num_labels=32)  # fmt: skip
    return hf.MobileViTForImageClassification(config), image_inputs(64, batch=4)


def poolformer():
    config = hf.PoolFormerConfig(depths=[1, 1, 1, 1], hidden_sizes=[8, 16, 24, 32], num_labels=32)
    return hf.PoolFormerForImageClassification(config), image_inputs(64)


def pvt_v2():
    config = hf.PvtV2Config(image_size=64, depths=[1, 1, 1, 1], hidden_sizes=[8, 16, 24, 32],
                            num_attention_heads=[1, 1, 2, 2])  # fmt: skip
    return hf.PvtV2Model(config), image_inputs(64)


def regnet():
    config = hf.RegNetConfig(embedding_size=16, hidden_sizes=[16, 32], depths=[1, 2], groups_width=8, num_labels=32)
    return hf.RegNetForImageClassification(config), image_inputs(batch=4)


def swinv2():
    config = hf.Swinv2Config(image_size=32, patch_size=2, embed_dim=16, depths=[1, 2], num_heads=[2, 4], window_size=4)
    return hf.Swinv2Model(config), image_inputs()


def yolos():
    config = hf.YolosConfig(**{**IMAGE, "image_size": [32, 32]}, num_detection_tokens=5, num_labels=8)
    return hf.YolosForObjectDetection(config), image_inputs()


# ---- audio, several modalities, time series ----


def hubert():
    config = hf.HubertConfig(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                             intermediate_size=64, conv_dim=(16, 16), conv_stride=(5, 2), conv_kernel=(10, 3),
                             num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=2, mask_time_prob=0.0,
                             layerdrop=0.0)  # fmt: skip
    return hf.HubertModel(config), {"input_values": torch.randn(BATCH, 600)}


def audio_spectrogram():
    config = hf.ASTConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
                          patch_size=8, max_length=32, num_mel_bins=16, frequency_stride=8, time_stride=8)  # fmt: skip
    return hf.ASTModel(config), {"input_values": torch.randn(BATCH, 32, 16)}


def siglip():
    sizes = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)
    text = dict(vocab_size=VOCAB, max_position_embeddings=LENGTH, **sizes)
    config = hf.SiglipConfig(text_config=text, vision_config=dict(image_size=32, patch_size=8, **sizes))
    return hf.SiglipModel(config), {"input_ids": tokens(), **image_inputs()}


def vilt():
    config = hf.ViltConfig(**{**ENCODER, **IMAGE}, max_image_length=-1, modality_type_vocab_size=2)
    return hf.ViltModel(config), {**text_inputs(), **image_inputs()}


def patchtst():
    config = hf.PatchTSTConfig(num_input_channels=3, context_length=32, patch_length=8, patch_stride=8, d_model=32,
                               num_attention_heads=4, num_hidden_layers=2, ffn_dim=64, prediction_length=8)  # fmt: skip
    return hf.PatchTSTForPrediction(config), {"past_values": torch.randn(BATCH, 32, 3)}


def patchtsmixer():
    config = hf.PatchTSMixerConfig(context_length=32, prediction_length=8, patch_length=8, patch_stride=8,
                                   num_input_channels=3, d_model=16, num_layers=2)  # fmt: skip
    return hf.PatchTSMixerForPrediction(config), {"past_values": torch.randn(BATCH, 32, 3)}


FAMILIES = {
    build.__name__: build
    for build in (
        camembert, xlm_roberta, mobilebert, squeezebert, layoutlm, longformer, modernbert, roformer,
        xlnet, canine, bloom, codegen, cohere, falcon, gemma2, gpt_neo, gptj, granite, mamba, mpt, olmo2, qwen3,
        stablelm, starcoder2, pegasus, marian, mbart, blenderbot, m2m_100, convnextv2, dinov2, dpt, efficientnet,
        focalnet, levit, mobilevit, poolformer, pvt_v2, regnet, swinv2, yolos, hubert, audio_spectrogram, siglip, vilt,
        patchtst, patchtsmixer,
    )
}  # fmt: skip
