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


def timm_image(name, size=64, channels=3, **options):
    def make():
        import timm

        return timm.create_model(name, pretrained=False, num_classes=10, **options)

    add(Row(name, "timm", make, {"image": ("float", channels, size, size)}, positional=True))


def vision(name, size=64, output=None, loss="cross-entropy", **options):
    def make():
        import torchvision

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


def text(name, model, length=12, cached=False, **options):
    """A language model with a logit for each token. options: as of `transformer`."""
    inputs = {"input_ids": ("token", length), "attention_mask": ("mask", length)}
    constants = {"use_cache": False} if cached else {}
    transformer(name, model, inputs, constants=constants | options.pop("constants", {}), **options)


small = dict(vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
             intermediate_size=64, max_position_embeddings=32)
decoder = small | dict(num_key_value_heads=2, pad_token_id=0, bos_token_id=1, eos_token_id=2)

timm_image("convnext_atto", depths=(1, 1, 2, 1), dims=(16, 24, 32, 48))
timm_image("vit_tiny_patch16_224", img_size=64, embed_dim=48, depth=2, num_heads=3)
timm_image("mixer_s16_224", img_size=64, embed_dim=48, num_blocks=2)
vision("densenet121", block_config=(2, 2, 2, 2), growth_rate=8, num_init_features=16)
vision("mobilenet_v3_small")
text("bert", "BertForTokenClassification", configuration=small | dict(num_labels=7))
text("gpt2", "GPT2LMHeadModel", cached=True,
     configuration=dict(vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=32))
text("llama", "LlamaForCausalLM", cached=True, configuration=decoder)
transformer("t5", "T5ForConditionalGeneration",
            {"input_ids": ("token", 10), "attention_mask": ("mask", 10),
             "decoder_input_ids": ("token", 7)},
            dict(vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4,
                 decoder_start_token_id=0), constants={"use_cache": False}, attention="eager")
transformer("wav2vec2", "Wav2Vec2ForCTC", {"input_values": ("float", 800)},
            dict(vocab_size=20, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                 intermediate_size=64, conv_dim=(16, 16, 16), conv_stride=(5, 2, 2),
                 conv_kernel=(10, 3, 3), num_feat_extract_layers=3, num_conv_pos_embeddings=16,
                 num_conv_pos_embedding_groups=4, apply_spec_augment=False, mask_time_prob=0.0,
                 layerdrop=0.0))
