"""genai_files.py: a module of transformers, written as a file by ONNX Runtime GenAI's model builder.

    model = made(module, folder, "int4", fuse_qk_norm_gqa="true")

The module's configuration and weights are all that the builder reads: its tokenizer is one of the samples', and
nothing of it comes into the file.
"""
import contextlib
import io
import os
import shutil

import onnx

try:
    from onnxruntime_genai.models import builder
    MISSING = None
except ImportError as error:
    MISSING = error

TOKENIZER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../samples/chat")
# What the builder asks of configurations and transformers 5 calls otherwise.
OLDER = {"gemma3_text": lambda c: dict(rope_local_base_freq=c["rope_parameters"]["sliding_attention"]["rope_theta"],
                                       rope_parameters=c["rope_parameters"]["full_attention"]),
         "phi3": lambda c: dict(rope_parameters=c["rope_parameters"] | dict(type=c["rope_parameters"]["rope_type"]))}
# Layers that the builder calls otherwise than the framework (LFM2, Phi): ebb finds them by the file's names alone.
RENAMED = {"feed_forward.w1": "mlp.gate_proj", "feed_forward.w3": "mlp.up_proj", "feed_forward.w2": "mlp.down_proj",
           "self_attn.out_proj": "self_attn.o_proj", "self_attn.dense": "self_attn.o_proj"}


def called(layer):
    """What the builder calls a layer of the framework."""
    return next((layer.removesuffix(own) + other for own, other in RENAMED.items() if layer.endswith(own)), layer)


def made(module, folder, precision, **options):
    if MISSING:
        raise ImportError(f"{MISSING}: give a Python that has onnxruntime-genai")
    before, after, cache = (os.path.join(folder, n) for n in ("framework", "genai", "cache"))
    module.config.architectures = [type(module).__name__]
    module.save_pretrained(before)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(os.path.join(TOKENIZER, name), before)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        words = builder.parse_extra_options(None, before, after, precision, "cpu", cache, [f"{k}={v}" for k, v in options.items()])
        config = words["hf_details"]["hf_config"]
        for key, value in OLDER.get(config.model_type, lambda c: {})(config.to_dict()).items():
            object.__setattr__(config, key, value)
        builder.create_model(None, before, after, precision, "cpu", cache, **words)
    model = onnx.load(os.path.join(after, "model.onnx"))
    for node in model.graph.node: # the builder's 4 has ONNX Runtime round activations to 8 bits
        for a in node.attribute:
            if a.name == "accuracy_level":
                a.i = 1
            if a.name == "sliding_window_cache": # no past of length 0 with it
                node.attribute.remove(a)
                break
    return model
