"""Whole models of `transformers` with tiny configurations and random weights, one table row per family."""

import torch
import transformers as hf

VOCAB, BATCH, LENGTH = 97, 2, 12


def tokens(length=LENGTH):
    return torch.randint(3, VOCAB, (BATCH, length))


def text_inputs():
    """A padded batch, where the second row is three tokens shorter."""
    mask = torch.ones(BATCH, LENGTH, dtype=torch.int64)
    mask[1, -3:] = 0
    return {"input_ids": tokens(), "attention_mask": mask}


def seq2seq_inputs():
    return {**text_inputs(), "decoder_input_ids": tokens(7)}


def image_inputs(size=32, batch=BATCH):
    return {"pixel_values": torch.randn(batch, 3, size, size)}


# The names of the same few sizes in the configurations of the families.
ENCODER = dict(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
               max_position_embeddings=40)  # fmt: skip
DECODER = dict(**ENCODER, num_key_value_heads=2, use_cache=False)
IMAGE = dict(image_size=32, patch_size=8, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
             intermediate_size=64)  # fmt: skip


def bert():
    return hf.BertForSequenceClassification(hf.BertConfig(**ENCODER, num_labels=32)), text_inputs()


def roberta():
    return hf.RobertaForMaskedLM(hf.RobertaConfig(**ENCODER, pad_token_id=1)), text_inputs()


def distilbert():
    config = hf.DistilBertConfig(vocab_size=VOCAB, dim=32, n_layers=2, n_heads=4, hidden_dim=64)
    return hf.DistilBertModel(config), text_inputs()


def albert():
    return hf.AlbertForMaskedLM(hf.AlbertConfig(**ENCODER, embedding_size=16)), text_inputs()


def electra():
    return hf.ElectraForPreTraining(hf.ElectraConfig(**ENCODER, embedding_size=16)), text_inputs()


def deberta_v2():
    config = hf.DebertaV2Config(**ENCODER, relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=8)
    return hf.DebertaV2Model(config), text_inputs()


def mpnet():
    return hf.MPNetModel(hf.MPNetConfig(**ENCODER)), text_inputs()


def gpt2():
    config = hf.GPT2Config(vocab_size=VOCAB, n_positions=40, n_embd=32, n_layer=2, n_head=4, use_cache=False)
    return hf.GPT2LMHeadModel(config), text_inputs()


def opt():
    config = hf.OPTConfig(vocab_size=VOCAB, hidden_size=32, word_embed_proj_dim=32, num_hidden_layers=2, ffn_dim=64,
                          num_attention_heads=4, max_position_embeddings=40, use_cache=False)  # fmt: skip
    return hf.OPTForCausalLM(config), text_inputs()


def gpt_neox():
    return hf.GPTNeoXForCausalLM(hf.GPTNeoXConfig(**ENCODER, use_cache=False)), text_inputs()


def llama():
    return hf.LlamaForCausalLM(hf.LlamaConfig(**DECODER)), text_inputs()


def qwen2():
    return hf.Qwen2ForCausalLM(hf.Qwen2Config(**DECODER)), text_inputs()


def mistral():
    return hf.MistralForCausalLM(hf.MistralConfig(**DECODER, sliding_window=8)), text_inputs()


def gemma():
    return hf.GemmaForCausalLM(hf.GemmaConfig(**DECODER, head_dim=8)), text_inputs()


def phi():
    return hf.PhiForCausalLM(hf.PhiConfig(**ENCODER, use_cache=False)), text_inputs()


def t5():
    config = hf.T5Config(vocab_size=VOCAB, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, use_cache=False)
    return hf.T5ForConditionalGeneration(config), seq2seq_inputs()


def bart():
    config = hf.BartConfig(vocab_size=VOCAB, d_model=32, encoder_layers=2, decoder_layers=2, encoder_ffn_dim=64,
                           encoder_attention_heads=4, decoder_attention_heads=4, decoder_ffn_dim=64,
                           max_position_embeddings=40, use_cache=False)  # fmt: skip
    return hf.BartForConditionalGeneration(config), seq2seq_inputs()


def vit():
    return hf.ViTModel(hf.ViTConfig(**IMAGE)), image_inputs()


def deit():
    return hf.DeiTModel(hf.DeiTConfig(**IMAGE)), image_inputs()


def beit():
    return hf.BeitModel(hf.BeitConfig(**IMAGE)), image_inputs()


def swin():
    config = hf.SwinConfig(image_size=32, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4)
    return hf.SwinModel(config), image_inputs()


def convnext():
    config = hf.ConvNextConfig(hidden_sizes=[16, 32], depths=[1, 2], num_stages=2, num_labels=32)
    return hf.ConvNextForImageClassification(config), image_inputs()


def resnet():
    config = hf.ResNetConfig(embedding_size=16, hidden_sizes=[32, 64], depths=[1, 2], num_labels=32)
    return hf.ResNetForImageClassification(config), image_inputs()


def mobilenet_v2():
    config = hf.MobileNetV2Config(image_size=64, depth_multiplier=0.35, num_labels=32)
    # With two images, the fifty batch norms over 2x2 pixels leave eager's gradients with only 2 correct digits.
    return hf.MobileNetV2ForImageClassification(config), image_inputs(64, batch=8)


def segformer():
    config = hf.SegformerConfig(depths=[1, 1, 1, 1], hidden_sizes=[8, 16, 16, 32], num_attention_heads=[1, 2, 2, 4],
                                decoder_hidden_size=16, num_labels=32)  # fmt: skip
    return hf.SegformerForSemanticSegmentation(config), image_inputs(64)


def clip():
    sizes = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)
    text = dict(vocab_size=VOCAB, max_position_embeddings=40, eos_token_id=2, **sizes)
    config = hf.CLIPConfig(
        text_config=text, vision_config=dict(image_size=32, patch_size=8, **sizes), projection_dim=16
    )
    return hf.CLIPModel(config), {**text_inputs(), **image_inputs()}


def whisper():
    config = hf.WhisperConfig(vocab_size=VOCAB, d_model=32, encoder_layers=2, decoder_layers=2, encoder_ffn_dim=64,
                              encoder_attention_heads=4, decoder_attention_heads=4, decoder_ffn_dim=64,
                              num_mel_bins=16, max_source_positions=24, max_target_positions=40, use_cache=False,
                              pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1)  # fmt: skip
    return hf.WhisperModel(config), {"input_features": torch.randn(BATCH, 16, 48), "decoder_input_ids": tokens(7)}


def wav2vec2():
    config = hf.Wav2Vec2Config(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                               intermediate_size=64, conv_dim=(16, 16), conv_stride=(5, 2), conv_kernel=(10, 3),
                               num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=2,
                               mask_time_prob=0.0, layerdrop=0.0)  # fmt: skip
    return hf.Wav2Vec2Model(config), {"input_values": torch.randn(BATCH, 600)}


FAMILIES = {
    build.__name__: build
    for build in (
        bert, roberta, distilbert, albert, electra, deberta_v2, mpnet, gpt2, opt, gpt_neox, llama, qwen2, mistral,
        gemma, phi, t5, bart, vit, deit, beit, swin, convnext, resnet, mobilenet_v2, segformer, clip, whisper, wav2vec2,
    )
}  # fmt: skip
