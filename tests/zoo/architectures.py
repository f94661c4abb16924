"""The zoo's table: one row for each architecture, small, with random weights.

A row makes a module and says what goes in, which output is trained on and by which loss. All widths,
depths and images are as small as the architecture bears, so that a row takes seconds. Nothing is
downloaded: every model comes from its configuration.
"""
import dataclasses
from typing import Any, Callable

import torch

BATCH = 4
VOCABULARY = 99


@dataclasses.dataclass
class Row:
    name: str
    package: str
    make: Callable[[], torch.nn.Module]
    inputs: dict[str, tuple]  # name: (kind, *dims without the batch)
    loss: str = "cross-entropy"  # or mse
    axis: int = 1  # of the classes
    output: Any = None  # attribute, key or index of what the module returns; None: the tensor itself
    constants: dict = dataclasses.field(default_factory=dict)  # further keyword arguments
    positional: bool = False  # inputs are given by position
    classes: int | None = None  # targets are below this; None: as many as there are logits


rows: dict[str, Row] = {}


def add(row):
    assert row.name not in rows, row.name
    rows[row.name] = row


# ---- images: timm and torchvision ----


def timm_image(name, size=64, **options):
    def make():
        import timm

        return timm.create_model(name, pretrained=False, num_classes=10, **options)

    add(Row(name, "timm", make, {"image": ("float", 3, size, size)}, positional=True))


def vision(name, size=64, output=None, loss="cross-entropy", class_name=None, **options):
    def make():
        import torchvision

        if class_name:  # where the function of that name takes no sizes
            return getattr(torchvision.models, class_name)(num_classes=10, **options)
        maker = torchvision.models.get_model_builder(name)
        return maker(**({"weights": None, "num_classes": 10} | options))

    inputs = {"image": ("float", 3, size, size)}
    add(Row(name, "torchvision", make, inputs, loss, output=output, positional=True))


# ---- text, speech and pairs: transformers ----


def transformer(name, model, inputs, configuration, output="logits", loss="cross-entropy", axis=2,
                attention="sdpa", constants=None):
    """configuration: the arguments of the model's own configuration class."""

    def make():
        import transformers

        kind = getattr(transformers, model)
        made = kind.config_class(**configuration)
        made._attn_implementation = attention
        return kind._from_config(made, attn_implementation=attention)

    add(Row(name, "transformers", make, inputs, loss, axis, output,
            {"return_dict": True} | (constants or {})))


def text(name, model, length=12, cached=False, mask=True, **options):
    """A language model with a logit for each token. options: as of `transformer`."""
    inputs = {"input_ids": ("token", length)} | ({"attention_mask": ("mask", length)} if mask else {})
    constants = {"use_cache": False} if cached else {}
    transformer(name, model, inputs, constants=constants | options.pop("constants", {}), **options)


def encoder(name, model, **options):
    """A classifier of tokens."""
    configuration = small | dict(num_labels=7) | options.pop("configuration", {})
    text(name, model, configuration=configuration, **options)


def causal(name, model, **options):
    """A decoder of the llama kind."""
    text(name, model, cached=True, configuration=decoder | options.pop("configuration", {}), **options)


def both(name, model, configuration, **options):
    """An encoder of text with a decoder."""
    inputs = {"input_ids": ("token", 10), "attention_mask": ("mask", 10), "decoder_input_ids": ("token", 7)}
    transformer(name, model, inputs, dict(vocab_size=VOCABULARY, pad_token_id=0) | configuration,
                constants={"use_cache": False}, **options)


def picture(name, model, size=32, output="logits", loss="cross-entropy", axis=1, inputs=None, **options):
    """A classifier of images."""
    inputs = {"pixel_values": ("float", 3, size, size)} | (inputs or {})
    transformer(name, model, inputs, output=output, loss=loss, axis=axis, **options)


small = dict(vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
             intermediate_size=64, max_position_embeddings=32)
decoder = small | dict(num_key_value_heads=2, pad_token_id=0, bos_token_id=1, eos_token_id=2)

patches = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
               image_size=32, patch_size=8, num_labels=10)
pair = dict(d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
            decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, max_position_embeddings=32)
waves = dict(vocab_size=20, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
             intermediate_size=64, conv_dim=(16, 16, 16), conv_stride=(5, 2, 2), conv_kernel=(10, 3, 3),
             num_feat_extract_layers=3, num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4,
             apply_spec_augment=False, mask_time_prob=0.0, layerdrop=0.0)

# Convolutional networks.
timm_image("convnext_atto", depths=(1, 1, 2, 1), dims=(16, 24, 32, 48), drop_path_rate=0.2)
timm_image("convnextv2_atto", depths=(1, 1, 1, 1), dims=(16, 24, 32, 48))
timm_image("cspresnet50")
timm_image("dla34")
timm_image("dpn48b")
timm_image("edgenext_xx_small")
timm_image("efficientnet_b0")
timm_image("ese_vovnet19b_slim_dw")
timm_image("fasternet_t0")
timm_image("ghostnet_050")
timm_image("hgnetv2_b0")
timm_image("hrnet_w18_small")
timm_image("inception_next_atto", depths=(1, 1, 1, 1))
timm_image("inception_v4", size=96)
timm_image("lcnet_035")
timm_image("legacy_seresnet18")
timm_image("mambaout_femto", depths=(1, 1, 1, 1))
timm_image("mobilenetv4_conv_small_035")
timm_image("nf_regnet_b0")
timm_image("regnety_002")
timm_image("repvgg_a0")
timm_image("resnest14d")
timm_image("resnet26t")
timm_image("rexnetr_100")
timm_image("seresnext26t_32x4d")
timm_image("skresnet18")
timm_image("tf_efficientnetv2_b0")
timm_image("xception41")
vision("densenet121", class_name="DenseNet", block_config=(2, 2, 2, 2), growth_rate=8, num_init_features=16)
vision("googlenet", aux_logits=False, init_weights=False)
vision("inception_v3", size=96, aux_logits=False, init_weights=False)
vision("mnasnet0_5")
vision("mobilenet_v3_small")
vision("regnet_x_400mf")
vision("shufflenet_v2_x0_5")
vision("squeezenet1_1")
vision("deeplabv3_mobilenet_v3_large", output="out", weights_backbone=None)
vision("lraspp_mobilenet_v3_large", output="out", weights_backbone=None)

# Vision transformers and mixers.
timm_image("beit_base_patch16_224", img_size=64, embed_dim=48, depth=2, num_heads=3)
timm_image("cait_xxs24_224", img_size=64, embed_dim=48, depth=2, num_heads=3)
timm_image("coat_lite_tiny", img_size=64, embed_dims=(32, 32, 64, 64), serial_depths=(1, 1, 1, 1))
timm_image("coatnet_pico_rw_224", img_size=64)
timm_image("convit_tiny", img_size=64, embed_dim=48, depth=3, num_heads=3, local_up_to_layer=2)
timm_image("davit_tiny", depths=(1, 1, 1, 1), embed_dims=(16, 32, 48, 64), num_heads=(1, 2, 3, 4))
timm_image("deit_tiny_distilled_patch16_224", img_size=64, embed_dim=48, depth=2, num_heads=3)
timm_image("efficientformer_l1", size=224)
timm_image("efficientvit_b0")
timm_image("eva02_tiny_patch14_224", size=56, img_size=56, embed_dim=48, depth=2, num_heads=3)
timm_image("fastvit_t8", layers=(1, 1, 1, 1))
timm_image("focalnet_tiny_srf")
timm_image("gmlp_s16_224", size=64, img_size=64)
timm_image("hiera_tiny_224", img_size=(64, 64), embed_dim=16, stages=(1, 1, 1, 1))
timm_image("levit_128s", img_size=64)
timm_image("maxvit_pico_rw_256", size=64, img_size=64)
timm_image("mixer_s32_224", img_size=64)
timm_image("mobilevit_xxs")
timm_image("mobilevitv2_050")
timm_image("mvitv2_tiny", img_size=64)
timm_image("pit_ti_224", size=64, img_size=64, base_dims=(16, 16, 16), depth=(1, 1, 1))
timm_image("poolformer_s12")
timm_image("caformer_s18")
timm_image("pvt_v2_b0", depths=(1, 1, 1, 1), embed_dims=(16, 24, 32, 48), num_heads=(1, 1, 2, 2))
timm_image("resmlp_12_224", img_size=64)
timm_image("sequencer2d_s", layers=(1, 1, 1, 1), embed_dims=(16, 24, 24, 24), hidden_sizes=(8, 8, 8, 8))
timm_image("swin_tiny_patch4_window7_224", size=56, img_size=56, embed_dim=24, depths=(2, 2), num_heads=(2, 4))
timm_image("swinv2_tiny_window8_256", img_size=64, embed_dim=24, depths=(2, 2), num_heads=(2, 4))
timm_image("tiny_vit_5m_224", embed_dims=(16, 24, 32, 48), depths=(1, 1, 1, 1), num_heads=(1, 1, 2, 2), window_sizes=(4, 4, 4, 2))
timm_image("tnt_s_patch16_224", img_size=64, embed_dim=48, inner_dim=24, depth=2, num_heads_outer=3)
timm_image("twins_svt_small", img_size=64, embed_dims=(16, 24, 32, 48), depths=(1, 1, 1, 1), num_heads=(1, 1, 2, 2))
timm_image("vit_tiny_patch16_224", img_size=64, embed_dim=48, depth=2, num_heads=3, drop_rate=0.1, attn_drop_rate=0.1, drop_path_rate=0.2)
timm_image("volo_d1_224", size=64, img_size=64)
timm_image("xcit_nano_12_p16_224", img_size=64, embed_dim=48, depth=2, num_heads=3)
picture("hf_beit", "BeitForImageClassification", configuration=patches | dict(use_relative_position_bias=True))
picture("cvt", "CvtForImageClassification", configuration=dict(embed_dim=[16, 24, 32], num_heads=[1, 2, 4], depth=[1, 1, 1], num_labels=10), attention="eager")
picture("dinov2", "Dinov2ForImageClassification", configuration=patches)
picture("dpt", "DPTForSemanticSegmentation", configuration=patches | dict(
    backbone_out_indices=[0, 1, 2, 3], num_hidden_layers=4, neck_hidden_sizes=[16, 24, 32, 32],
    fusion_hidden_size=16, use_auxiliary_head=False, backbone_config=None))
picture("hf_vit_eager", "ViTForImageClassification", configuration=patches, attention="eager")
picture("segformer", "SegformerForSemanticSegmentation", size=64, configuration=dict(
    depths=[1, 1, 1, 1], hidden_sizes=[16, 24, 32, 48], decoder_hidden_size=32, num_attention_heads=[1, 2, 2, 4], num_labels=6))
picture("yolos", "YolosForObjectDetection", configuration=patches | dict(image_size=[32, 32], num_detection_tokens=5), axis=2)

# Language models: encoders.
for attention in ("sdpa", "eager"):
    encoder("bert_" + attention, "BertForTokenClassification", attention=attention)
encoder("albert", "AlbertForTokenClassification", configuration=dict(embedding_size=16))
encoder("convbert", "ConvBertForTokenClassification", configuration=dict(embedding_size=32), attention="eager")
encoder("deberta", "DebertaForTokenClassification", attention="eager", configuration=dict(
    relative_attention=True, pos_att_type=["c2p", "p2c"], max_relative_positions=16))
encoder("deberta_v2", "DebertaV2ForTokenClassification", attention="eager", configuration=dict(
    relative_attention=True, pos_att_type=["c2p", "p2c"], position_buckets=8, norm_rel_ebd="layer_norm", share_att_key=True))
text("distilbert", "DistilBertForTokenClassification",
     configuration=dict(vocab_size=VOCABULARY, dim=32, n_layers=2, n_heads=4, hidden_dim=64, max_position_embeddings=32, num_labels=7))
encoder("electra", "ElectraForTokenClassification", configuration=dict(embedding_size=16))
text("fnet", "FNetForTokenClassification", mask=False, attention="eager", configuration=small | dict(num_labels=7))
text("funnel", "FunnelForTokenClassification", attention="eager", configuration=dict(
    vocab_size=VOCABULARY, block_sizes=[1, 1], num_decoder_layers=1, d_model=32, n_head=4, d_head=8, d_inner=64, num_labels=7))
encoder("layoutlm", "LayoutLMForTokenClassification")
encoder("mobilebert", "MobileBertForTokenClassification", configuration=dict(embedding_size=16, intra_bottleneck_size=16))
encoder("modernbert", "ModernBertForTokenClassification", configuration=dict(pad_token_id=0, global_attn_every_n_layers=2, local_attention=8))
encoder("mpnet", "MPNetForTokenClassification", attention="eager")
encoder("nystromformer", "NystromformerForTokenClassification", attention="eager", configuration=dict(
    num_landmarks=4, segment_means_seq_len=16, conv_kernel_size=3, inv_coeff_init_option=False), length=16)
encoder("roberta", "RobertaForTokenClassification", configuration=dict(pad_token_id=1))
encoder("rembert", "RemBertForTokenClassification", attention="eager", configuration=dict(input_embedding_size=16, output_embedding_size=16))
encoder("roformer", "RoFormerForTokenClassification", attention="eager", configuration=dict(embedding_size=32))
text("squeezebert", "SqueezeBertForTokenClassification", attention="eager", configuration=small | dict(
    num_labels=7, embedding_size=32, q_groups=2, k_groups=2, v_groups=2, intermediate_groups=2, output_groups=2))
text("xlnet", "XLNetForTokenClassification", attention="eager", constants={"use_mems": False},
     configuration=dict(vocab_size=VOCABULARY, d_model=32, n_layer=2, n_head=4, d_inner=64, num_labels=7))

# Language models: decoders.
gpt = dict(vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=32)
for attention in ("sdpa", "eager"):
    text("gpt2_" + attention, "GPT2LMHeadModel", cached=True, configuration=gpt, attention=attention)
    causal("llama_" + attention, "LlamaForCausalLM", attention=attention)
text("bloom", "BloomForCausalLM", cached=True, attention="eager", configuration=dict(vocab_size=VOCABULARY, hidden_size=32, n_layer=2, n_head=4))
text("codegen", "CodeGenForCausalLM", cached=True, attention="eager", configuration=gpt | dict(rotary_dim=4))
causal("cohere", "CohereForCausalLM")
text("falcon", "FalconForCausalLM", cached=True, configuration=dict(vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, num_attention_heads=4))
causal("gemma", "GemmaForCausalLM", configuration=dict(head_dim=8))
causal("gemma2", "Gemma2ForCausalLM", configuration=dict(head_dim=8, sliding_window=6), attention="eager")
text("gpt_neo", "GPTNeoForCausalLM", cached=True, attention="eager", configuration=dict(
    vocab_size=VOCABULARY, hidden_size=32, num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]], window_size=4, max_position_embeddings=32))
text("gpt_neox", "GPTNeoXForCausalLM", cached=True, configuration=small)
text("gptj", "GPTJForCausalLM", cached=True, attention="eager", configuration=gpt | dict(rotary_dim=4))
transformer("mamba", "MambaForCausalLM", {"input_ids": ("token", 8)}, dict(
    vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=2, state_size=4, time_step_rank=4, use_mambapy=False), attention="eager", constants={"use_cache": False})
causal("mistral", "MistralForCausalLM", configuration=dict(sliding_window=6))
causal("olmo2", "Olmo2ForCausalLM")
text("opt", "OPTForCausalLM", cached=True, configuration=dict(
    vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, ffn_dim=64, max_position_embeddings=32, word_embed_proj_dim=32))
causal("phi", "PhiForCausalLM")
causal("phi3", "Phi3ForCausalLM")
causal("qwen2", "Qwen2ForCausalLM")
causal("qwen3", "Qwen3ForCausalLM", configuration=dict(head_dim=8))
causal("stablelm", "StableLmForCausalLM")
causal("starcoder2", "Starcoder2ForCausalLM")

# Encoders with decoders.
both("bart", "BartForConditionalGeneration", pair)
both("m2m100", "M2M100ForConditionalGeneration", pair | dict(encoder_layerdrop=0.0, decoder_layerdrop=0.0))
both("marian", "MarianMTModel", pair | dict(decoder_start_token_id=0, decoder_vocab_size=VOCABULARY))
both("pegasus", "PegasusForConditionalGeneration", pair)
both("t5", "T5ForConditionalGeneration", dict(d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, decoder_start_token_id=0), attention="eager")

# Speech and sound.
sound = {"input_values": ("float", 800)}
transformer("hubert", "HubertForCTC", sound, waves)
transformer("sew", "SEWForCTC", sound, waves | dict(squeeze_factor=2))
transformer("wav2vec2", "Wav2Vec2ForCTC", sound, waves)
transformer("wav2vec2_eager", "Wav2Vec2ForCTC", sound, waves | dict(feat_extract_norm="layer", do_stable_layer_norm=True), attention="eager")
transformer("whisper", "WhisperForConditionalGeneration", {"input_features": ("float", 8, 40), "decoder_input_ids": ("token", 7), "decoder_attention_mask": ("mask", 7)},
            dict(vocab_size=VOCABULARY, num_mel_bins=8, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
                 decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, max_source_positions=20, max_target_positions=16,
                 pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, begin_suppress_tokens=None,
                 suppress_tokens=None), constants={"use_cache": False})
transformer("ast", "ASTForAudioClassification", {"input_values": ("float", 32, 16)}, dict(
    hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, patch_size=8,
    frequency_stride=8, time_stride=8, max_length=32, num_mel_bins=16, num_labels=10), axis=1)

# Text with images, detection, series.
transformer("clip", "CLIPModel", {"input_ids": ("token", 8), "pixel_values": ("float", 3, 32, 32), "attention_mask": ("mask", 8)}, dict(
    text_config=small | dict(eos_token_id=2), vision_config=patches, projection_dim=16), output="logits_per_image", axis=1)
transformer("siglip", "SiglipModel", {"input_ids": ("token", 8), "pixel_values": ("float", 3, 32, 32)}, dict(
    text_config=small, vision_config=patches), output="logits_per_image", axis=1)
transformer("vilt", "ViltForTokenClassification", {"input_ids": ("token", 8), "attention_mask": ("mask", 8), "pixel_values": ("float", 3, 32, 32)},
            small | dict(image_size=32, patch_size=8, num_labels=7, max_image_length=-1), attention="eager")
transformer("patchtst", "PatchTSTForPrediction", {"past_values": ("float", 32, 3)}, dict(
    num_input_channels=3, context_length=32, patch_length=8, patch_stride=8, num_hidden_layers=2, d_model=32, num_attention_heads=4,
    ffn_dim=64, prediction_length=8, do_mask_input=False), output="prediction_outputs", loss="mse")
transformer("patchtsmixer", "PatchTSMixerForPrediction", {"past_values": ("float", 32, 3)}, dict(
    num_input_channels=3, context_length=32, patch_length=8, patch_stride=8, num_layers=2, d_model=16, prediction_length=8,
    loss="mse"), attention="eager", output="prediction_outputs", loss="mse")
