"""quantised_zoo.py: small decoders with random weights, quantised as publishers do it, and adapters beside their layers.

    PYTHON tests/models/quantised_zoo.py --ebb build/release/ebb [--keep DIR] [ARCHITECTURE/FORMAT...]

PYTHON is one that has torch, transformers, onnx and onnxruntime; without them the test skips. Nothing is
downloaded. Each case is an architecture, exported as optimum exports it or built by ONNX Runtime GenAI's builder
(which those cases need, genai_files.py), and a format of its weights:

    logits      `ebb run` by stock ONNX Runtime on the same file
    names       adapters by the names of PEFT: of which of the framework's layers a node's weight is, its decoded
                numbers tell, and ebb has to find it by what the file says
    gradients   loss, adapters' and float weights' gradients by float64 in PyTorch (torch_graph.py)
    steps       adapters after two steps of AdamW

Exit codes: 0, 1 where something differs, 77 where the packages are not here.
"""
import argparse
import inspect
import logging
import os
import re
import subprocess
import sys
import tempfile
import types
import warnings
import zlib

SKIPPED = 77
sys.dont_write_bytecode = True
try:
    import numpy as np
    import onnx
    import onnxruntime
    import torch
    import transformers
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static
    from onnxruntime.quantization.matmul_bnb4_quantizer import MatMulBnb4Quantizer
    from onnxruntime.quantization.matmul_nbits_quantizer import (DefaultWeightOnlyQuantConfig, HQQWeightOnlyQuantConfig,
                                                                   KQuantWeightOnlyQuantConfig, MatMulNBitsQuantizer)
    from safetensors.numpy import load_file, save_file
except ImportError as error:
    print(f"SKIP: {error}: give a Python that has torch, transformers, onnx, onnxruntime and safetensors")
    sys.exit(SKIPPED)
import genai_files
import torch_graph

VOCABULARY, RANK, ALPHA = 160, 4, 8.0
SMALL = dict(vocab_size=VOCABULARY, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=112,
             max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2)
GROUPED = SMALL | dict(num_key_value_heads=2)
GPT = dict(vocab_size=VOCABULARY, n_embd=64, n_layer=2, n_head=4, n_positions=64, bos_token_id=1, eos_token_id=2)
# name -> (class, configuration)
ARCHITECTURES = {
    "llama": ("Llama", GROUPED),
    "llama_tied": ("Llama", GROUPED | dict(tie_word_embeddings=True)),
    "qwen2": ("Qwen2", GROUPED),
    "qwen3": ("Qwen3", GROUPED | dict(head_dim=16)),
    "gemma": ("Gemma", GROUPED | dict(head_dim=16)),
    "gemma2": ("Gemma2", GROUPED | dict(head_dim=16, sliding_window=6, query_pre_attn_scalar=16)),
    "gemma3": ("Gemma3", GROUPED | dict(head_dim=16, sliding_window=6, query_pre_attn_scalar=16)),
    "phi": ("Phi", SMALL | dict(num_attention_heads=2)),
    "phi3": ("Phi3", GROUPED | dict(original_max_position_embeddings=64)),
    "mistral": ("Mistral", GROUPED | dict(sliding_window=6)),
    "gpt2": ("GPT2LMHeadModel", GPT),
    "opt": ("OPT", dict(vocab_size=VOCABULARY, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, ffn_dim=112,
                        max_position_embeddings=64, word_embed_proj_dim=64)),
    "gpt_neox": ("GPTNeoX", SMALL),
    "stablelm": ("StableLm", GROUPED),
    "olmo2": ("Olmo2", GROUPED),
    "smollm3": ("SmolLM3", GROUPED),
    "granite": ("Granite", GROUPED | dict(embedding_multiplier=3.0, residual_multiplier=0.5, logits_scaling=2.0, attention_multiplier=0.2)),
    "cohere": ("Cohere", GROUPED),
    "falcon": ("Falcon", dict(vocab_size=VOCABULARY, hidden_size=64, num_hidden_layers=2, num_attention_heads=4)),
    "lfm2": ("Lfm2", GROUPED | dict(layer_types=["conv", "full_attention"], block_auto_adjust_ff_dim=False)),
    "lfm2_moe": ("Lfm2Moe", GROUPED | dict(layer_types=["conv", "full_attention"], num_experts=4, num_experts_per_tok=2,
                                           moe_intermediate_size=64, num_dense_layers=1)),
    "phi3_long": ("Phi3", GROUPED | dict(rope_parameters=dict(
        rope_type="longrope", rope_theta=1e4, short_factor=[1 + 0.1 * i for i in range(8)], long_factor=[2 + 0.3 * i for i in range(8)],
        original_max_position_embeddings=32), original_max_position_embeddings=32)),
    "olmo": ("Olmo", GROUPED),
    "nemotron": ("Nemotron", GROUPED | dict(num_attention_heads=2, num_key_value_heads=1)),
    "ernie": ("Ernie4_5", GROUPED | dict(head_dim=16)),
    "hunyuan": ("HunYuanDenseV1", GROUPED | dict(head_dim=16)),
    "mixtral": ("Mixtral", GROUPED | dict(num_local_experts=4, num_experts_per_tok=2)),
    "qwen3_moe": ("Qwen3Moe", GROUPED | dict(head_dim=16, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=48)),
    "gpt_oss": ("GptOss", GROUPED | dict(head_dim=16, num_local_experts=4, num_experts_per_tok=2, sliding_window=6)),
    "bloom": ("Bloom", dict(vocab_size=VOCABULARY, hidden_size=64, n_layer=2, n_head=4)),
    "gpt_bigcode": ("GPTBigCode", GPT),
    "gptj": ("GPTJ", GPT | dict(rotary_dim=8)),
    "gpt_neo": ("GPTNeo", SMALL | dict(num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]], window_size=6)),
    "codegen": ("CodeGen", GPT | dict(rotary_dim=8)),
    "mpt": ("Mpt", dict(vocab_size=VOCABULARY, d_model=64, n_layers=2, n_heads=4, expansion_ratio=2, max_seq_len=64)),
    "starcoder2": ("Starcoder2", GROUPED | dict(sliding_window=6)),
    "glm": ("Glm", GROUPED | dict(head_dim=16)),
    "glm4": ("Glm4", GROUPED | dict(head_dim=16)),
    "cohere2": ("Cohere2", GROUPED | dict(head_dim=16, sliding_window=6, logit_scale=0.25)),
    "olmo3": ("Olmo3", GROUPED | dict(sliding_window=6)),
    "helium": ("Helium", GROUPED | dict(head_dim=16)),
    "arcee": ("Arcee", GROUPED),
    "apertus": ("Apertus", GROUPED),
    "exaone4": ("Exaone4", GROUPED | dict(sliding_window=6, sliding_window_pattern=2)),
    "seed_oss": ("SeedOss", GROUPED | dict(head_dim=16)),
    "bitnet": ("BitNet", GROUPED),
    "persimmon": ("Persimmon", SMALL),
    "ministral": ("Ministral", GROUPED | dict(head_dim=16, sliding_window=6)),
    "nanochat": ("NanoChat", GROUPED),
    "doge": ("Doge", GROUPED),
    "xglm": ("XGLM", dict(vocab_size=VOCABULARY, d_model=64, ffn_dim=112, num_layers=2, attention_heads=4, max_position_embeddings=64)),
    "biogpt": ("BioGpt", SMALL),
    "diffllama": ("DiffLlama", GROUPED),
    "vaultgemma": ("VaultGemma", GROUPED | dict(head_dim=16, sliding_window=6, query_pre_attn_scalar=16)),
    "olmoe": ("Olmoe", GROUPED | dict(num_experts=4, num_experts_per_tok=2)),
    "qwen2_moe": ("Qwen2Moe", GROUPED | dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=48, shared_expert_intermediate_size=48)),
    "granite_moe": ("GraniteMoe", GROUPED | dict(num_local_experts=4, num_experts_per_tok=2)),
    "dots1": ("Dots1", GROUPED | dict(head_dim=16, n_routed_experts=4, n_shared_experts=1, num_experts_per_tok=2, moe_intermediate_size=48, n_group=1, topk_group=1,
                                      first_k_dense_replace=1)),
}

# A rotary stack along the wrong axis, which ONNX Runtime refuses as well; operators that are not exported.
NO_TORCHSCRIPT = ("cohere", "ernie", "phi3_long", "glm", "glm4", "cohere2", "helium", "apertus", "diffllama")


def by_bits(bits, block, symmetric, **more):
    def quantise(model, folder, batch):
        config = DefaultWeightOnlyQuantConfig(block_size=block, is_symmetric=symmetric, bits=bits, **more)
        made = MatMulNBitsQuantizer(model, bits=bits, block_size=block, is_symmetric=symmetric, algo_config=config)
        made.process()
        return made.model.model
    return quantise


def by_bnb4(kind, block):
    def quantise(model, folder, batch):
        made = MatMulBnb4Quantizer(model, kind, block)
        made.process()
        return made.model.model
    return quantise


def by_files(quantise_file):
    """A quantiser that reads and writes files."""
    def quantise(model, folder, batch):
        before, after = os.path.join(folder, "float.onnx"), os.path.join(folder, "quantised.onnx")
        onnx.save(model, before)
        quantise_file(before, after, batch, model)
        return onnx.load(after)
    return quantise


def dynamic(**options):
    return by_files(lambda before, after, batch, model: quantize_dynamic(
        before, after, extra_options={"MatMulConstBOnly": True}, **options))


class Once(CalibrationDataReader):
    """The batch, and nothing after it."""

    def __init__(self, batch):
        self.left = [batch]

    def get_next(self):
        return self.left.pop() if self.left else None


def static(**options):
    """As QDQ; activations' ranges are widened, so that nothing is clipped."""
    def quantise_file(before, after, batch, model):
        layers = torch_graph.layers_of(model)
        quantize_static(before, after, Once(batch), quant_format=QuantFormat.QDQ, op_types_to_quantize=["MatMul"],
                        nodes_to_quantize=[n for n in layers if "lm_head" not in n], **options)
        made = onnx.load(after)
        scales = {n.input[1] for n in made.graph.node if n.op_type == "QuantizeLinear"}
        for t in made.graph.initializer:
            if t.name in scales:
                t.CopyFrom(onnx.numpy_helper.from_array((onnx.numpy_helper.to_array(t) * np.float32(1.5)), t.name))
        onnx.save(made, after)
    return by_files(quantise_file)


def float_zero_points(quantise_packed):
    """As HQQ writes them, and QA-LoRA: zero points that are no whole numbers."""
    def quantise(model, folder, batch):
        made = quantise_packed(model, folder, batch)
        tensors = {t.name: t for t in made.graph.initializer}
        draw = np.random.default_rng(5)
        for node in made.graph.node:
            if node.op_type == "MatMulNBits":
                scales = onnx.numpy_helper.to_array(tensors[node.input[2]])
                a = {x.name: x.i for x in node.attribute}
                zeros = (2 ** (a["bits"] - 1) + draw.uniform(-1, 1, scales.size)).astype(np.float32)
                zeros = zeros.reshape(a["N"], -1)
                tensors[node.input[3]].CopyFrom(onnx.numpy_helper.from_array(zeros, node.input[3]))
        return made
    return quantise


def by_config(make):
    """By another of the quantiser's ways."""
    def quantise(model, folder, batch):
        made = MatMulNBitsQuantizer(model, algo_config=make(model))
        made.process()
        return made.model.model
    return quantise


FORMATS = {
    "float": lambda model, folder, batch: model,
    **{f"q{bits}_{block}{'' if symmetric else '_zp'}": by_bits(bits, block, symmetric)
       for bits in (2, 4, 8) for block in (16, 32, 64, 128) for symmetric in (True, False)},
    "q4_float_zp": float_zero_points(by_bits(4, 16, False)),
    "q4_gather": by_bits(4, 32, True, op_types_to_quantize=("MatMul", "Gather"), quant_axes=(("MatMul", 0), ("Gather", 1))),
    "q4_gather_zp": by_bits(4, 16, False, op_types_to_quantize=("MatMul", "Gather"), quant_axes=(("MatMul", 0), ("Gather", 1))),
    "q4_qdq": by_bits(4, 32, True, quant_format=QuantFormat.QDQ),
    "q4_qdq_zp": by_bits(4, 16, False, quant_format=QuantFormat.QDQ),
    "q4_hqq": by_config(lambda model: HQQWeightOnlyQuantConfig(block_size=32, bits=4)),
    "q4_k": by_config(lambda model: KQuantWeightOnlyQuantConfig(
        customized_weight_config={n: {"bits": 4, "group_size": 32} for n in torch_graph.layers_of(model)})),
    "q8_k": by_config(lambda model: KQuantWeightOnlyQuantConfig(
        customized_weight_config={n: {"bits": 8, "group_size": 32} for n in torch_graph.layers_of(model)})),
    "nf4": by_bnb4(1, 64), "fp4": by_bnb4(0, 32),
    "int8": dynamic(weight_type=QuantType.QInt8), "uint8": dynamic(weight_type=QuantType.QUInt8),
    "int8_channel": dynamic(weight_type=QuantType.QInt8, per_channel=True),
    "int8_reduced": dynamic(weight_type=QuantType.QInt8, per_channel=True, reduce_range=True),
    "qdq": static(weight_type=QuantType.QInt8, activation_type=QuantType.QUInt8),
    "qdq_channel": static(weight_type=QuantType.QInt8, activation_type=QuantType.QUInt8, per_channel=True),
    "qdq_signed": static(weight_type=QuantType.QInt8, activation_type=QuantType.QInt8,
                         extra_options={"ActivationSymmetric": True, "WeightSymmetric": True}),
}
# Files of ONNX Runtime GenAI's builder: precision and options.
BUILT = {"genai": ("int4", {}), "genai_fp32": ("fp32", {}), "genai_apart": ("int4", dict(shared_embeddings="false", disable_qkv_fusion="true")),
         "genai_fused": ("int4", dict(fuse_qk_norm_gqa="true")), "genai_int8": ("int8", {}),
         "genai_qdq": ("int4", dict(use_qdq="true")), "genai_zp": ("int4", dict(int4_algo_config="k_quant", int4_is_symmetric="false")),
         "genai_mixed": ("int4", dict(int4_algo_config="k_quant_mixed"))}
ROUNDED = ("int8", "uint8", "int8_channel", "int8_reduced", "qdq", "qdq_channel", "qdq_signed")
# How a file is made before it is quantised: the exporter, and whether padding is on the left or there is a past.
SHAPES = {"": {}, "+past": {"past": True}, "+left": {"left": True}, "+past_left": {"past": True, "left": True},
          "+sdpa": {"attention": "sdpa"}, "+dynamo": {"dynamo": True}, "+fused": {"fused": True, "past": True}}
NO_SDPA = ("gemma2",)
CASES = [*(f"llama/{f}" for f in FORMATS), *(f"qwen2/{f}" for f in ("q4_32", "q4_16_zp", "nf4", "int8", "qdq_channel", "q4_qdq")),
         *(f"{a}/{f}" for a in ARCHITECTURES for f in ("q4_32", "q8_32_zp") if a not in ("llama", "qwen2", *NO_TORCHSCRIPT)),
         *(f"{a}+dynamo/{f}" for a in NO_TORCHSCRIPT for f in ("q4_32", "q8_32_zp")),
         *(f"{a}/{f}" for a in ("gpt2", "opt", "phi3", "gemma2", "gpt_neox") for f in ("int8_channel", "qdq", "nf4", "q4_qdq")),
         *(f"{a}{s}/{f}" for s in ("+past", "+left", "+past_left", "+sdpa", "+dynamo", "+fused")
           for a in ("llama", "qwen3", "gemma2", "phi3", "gpt2", "opt", "mistral", "gpt_neox") for f in ("q4_32",)
           if s != "+sdpa" or a not in NO_SDPA),
         *(f"{a}{s}/{f}" for s in ("+past", "+left", "+past_left") for a in ("starcoder2", "olmo3", "exaone4", "gptj", "gpt_bigcode", "gpt_neo",
                                                                             "ministral", "vaultgemma", "seed_oss", "olmoe") for f in ("q4_hqq",)),
         *(f"{a}/{f}" for a in ("qwen3", "gemma3", "gpt2", "starcoder2", "mpt") for f in ("q4_hqq", "q4_k", "q8_k", "q2_32_zp")),
         *(f"{a}{s}/{f}" for s in ("+past", "+dynamo") for a in ("llama",) for f in ("int8", "qdq", "nf4", "q4_qdq")),
         *(f"{a}/genai" for a in ("qwen2", "gemma", "gemma2", "gemma3", "phi", "phi3", "phi3_long", "mistral", "granite", "olmo", "nemotron",
                                  "smollm3", "ernie", "hunyuan", "lfm2", "lfm2_moe")),
         *(f"{a}/{f}" for a in ("llama", "qwen3") for f in BUILT)]


# ---- models ----


def made_module(architecture, attention):
    kind, configuration = ARCHITECTURES[architecture]
    torch.manual_seed(zlib.crc32(architecture.encode()))
    kind = getattr(transformers, kind if "Head" in kind else kind + "ForCausalLM")
    module = kind._from_config(kind.config_class(**configuration), attn_implementation=attention)
    if "num_experts_per_tok" in configuration: # whose sizes do not hang on values
        module.set_experts_implementation("batched_mm")
    with torch.no_grad():
        for name, p in module.named_parameters():
            p.copy_(torch.randn_like(p) * (0.1 if p.dim() > 1 else 0.05) + (p if p.dim() == 1 else 0))
    return module.eval()


def called(module, past):
    """The module, called with tensors by position as optimum does it."""
    inside = module.forward

    def forward(self, input_ids, attention_mask, position_ids, *cached):
        given = dict(input_ids=input_ids, attention_mask=attention_mask)
        if "position_ids" in inspect.signature(inside).parameters:
            given["position_ids"] = position_ids
        if not past:
            return inside(**given, use_cache=False).logits
        cache = transformers.DynamicCache(config=self.config)
        for i in range(0, len(cached), 2):
            cache.update(cached[i], cached[i + 1], i // 2)
        y = inside(**given, past_key_values=cache, use_cache=True)
        return (y.logits, *(t for layer in y.past_key_values.layers for t in (layer.keys, layer.values)))

    module.forward = types.MethodType(forward, module)
    return module


def drawn_batch(left):
    """Two rows, the second shorter; targets are those of the next token, and none in a prompt and in padding."""
    draw = np.random.default_rng(3)
    ids = draw.integers(3, VOCABULARY, (2, 20))
    mask = np.ones_like(ids)
    mask[1, slice(0, 5) if left else slice(15, 20)] = 0
    ids[mask == 0] = 0
    positions = np.where(mask == 1, mask.cumsum(1) - 1, 1)
    target = np.full_like(ids, -100)
    target[:, 4:-1] = ids[:, 5:]
    target[:, :-1][(mask[:, 1:] == 0) | (mask[:, :-1] == 0)] = -100
    return {"input_ids": ids, "attention_mask": mask, "position_ids": positions}, target


def past_of(module):
    """Heads and their size, layer by layer."""
    c = module.config
    heads = getattr(c, "num_key_value_heads", None) or c.num_attention_heads
    return c.num_hidden_layers, heads, getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads


def empty_past(said, module):
    """Keys and values of no tokens; a convolution's last inputs, which are zeros before the first token."""
    dims = [d.dim_value or d.dim_param for d in said.type.tensor_type.shape.dim]
    if said.name.startswith("past_key_values"):
        _, heads, size = past_of(module)
        return np.zeros((2, heads, 0, size), np.float32)
    return np.zeros((2, *dims[1:]), np.float32)


def export(module, path, past=False, left=False, attention="eager", dynamo=False, fused=False):
    module = called(module, past)
    batch, _ = drawn_batch(left)
    tensors = [torch.from_numpy(v) for v in batch.values()]
    names, outputs = list(batch), ["logits"]
    axes = {n: {0: "batch_size", 1: "sequence_length"} for n in [*names, *outputs]}
    if past:
        layers, heads, size = past_of(module)
        axes["attention_mask"] = {0: "batch_size", 1: "past_sequence_length + sequence_length"}
        tensors[1] = torch.cat([torch.ones(2, 3, dtype=torch.int64), tensors[1]], 1)
        for i in range(layers):
            for part in ("key", "value"):
                names.append(f"past_key_values.{i}.{part}")
                outputs.append(f"present.{i}.{part}")
                axes[names[-1]] = {0: "batch_size", 2: "past_sequence_length"}
                axes[outputs[-1]] = {0: "batch_size", 2: "past_sequence_length + sequence_length"}
                tensors.append(torch.randn(2, heads, 3, size))
    with torch.no_grad():
        if dynamo:
            torch.onnx.export(module, tuple(tensors), path, dynamo=True, opset_version=20, external_data=False, verbose=False,
                              input_names=names, output_names=outputs)
        else:
            torch.onnx.export(module, tuple(tensors), path, dynamo=False, opset_version=18, input_names=names,
                              output_names=outputs, dynamic_axes=axes)
    model = onnx.load(path)
    return fuse(path, module) if fused else model


def fuse(path, module):
    """As ONNX Runtime's scripts for decoders do it."""
    from onnxruntime.transformers import optimizer
    from onnxruntime.transformers.fusion_options import FusionOptions
    options = FusionOptions("gpt2")
    c = module.config
    made = optimizer.optimize_model(path, model_type="gpt2", num_heads=c.num_attention_heads, hidden_size=c.hidden_size,
                                    opt_level=0, optimization_options=options)
    return made.model


def framework_weights(module, built):
    """name of a layer -> its weight [out, in]."""
    kinds = (torch.nn.Linear, transformers.pytorch_utils.Conv1D)
    return {genai_files.called(name) if built else name: (m.weight.T if isinstance(m, kinds[1]) else m.weight).detach().double()
            for name, m in module.named_modules() if isinstance(m, kinds)}


def nearest(rows, known):
    """The framework's layer whose weight the first of these rows are."""
    near = {name: torch.nn.functional.cosine_similarity(rows[:len(k)].flatten(), k.flatten(), 0).item()
            for name, k in known.items() if k.shape[1] == rows.shape[1] and len(k) <= len(rows)}
    best = max(near, key=near.get, default=None)
    return best if best is not None and near[best] > 0.6 else None


def named_layers(layers, known):
    """node -> the framework's layers of which its rows are: one, or several where q, k and v are packed."""
    names = {}
    for node, w in layers.items():
        parts, row = [], 0
        while row < len(w) and (name := nearest(w[row:], known)):
            parts.append(name)
            row += len(known[name])
        if row == len(w):
            names[node] = parts
    return names


# ---- one case ----


def ask(*words):
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{words[1]}: exit {done.returncode}: " + " | ".join(done.stderr.strip().splitlines()[-3:]))
    return done.stdout + done.stderr


def by_onnxruntime(path, batch):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return session.run(["logits"], {i.name: batch[i.name] for i in session.get_inputs()})[0]


class Case:
    """A file with its batch, adapters and references."""

    def __init__(self, name, folder):
        whole, form = name.split("/")
        architecture, _, shape = whole.partition("+")
        self.options = SHAPES["+" + shape if shape else ""]
        self.folder, self.form = folder, form
        self.batch, self.target = drawn_batch(self.options.get("left", False))
        self.valid = self.batch["attention_mask"] == 1
        self.path = os.path.join(folder, "model.onnx")
        module = made_module(architecture, self.options.get("attention", "eager"))
        if form in BUILT:
            model = genai_files.made(module, folder, BUILT[form][0], **BUILT[form][1])
        else:
            model = export(module, self.path, **self.options)
        self.batch |= {i.name: empty_past(i, module) for i in model.graph.input if i.name.startswith("past")}
        wanted = {i.name for i in model.graph.input}
        self.batch = {k: v for k, v in self.batch.items() if k in wanted}
        notes = {n.name: list(n.metadata_props) for n in model.graph.node}
        self.model = FORMATS.get(form, lambda model, *_: model)(model, folder, self.batch)
        for node in self.model.graph.node: # quantisers drop them, and with them the only names that dynamo's files have
            if not node.metadata_props:
                node.metadata_props.extend(notes.get(re.sub("(_matmul)?_(Q[248]|Bnb4|quant)$", "", node.name), []))
        onnx.save(self.model, self.path)
        self.layers = torch_graph.layers_of(self.model)
        known = framework_weights(module, form in BUILT)
        self.names = named_layers(self.layers, known)
        self.rows = {name: tuple(w.shape) for name, w in known.items()}
        self.straight = form in ROUNDED
        self.given = {k: v for k, v in self.batch.items() if v.size}
        np.savez(os.path.join(folder, "batch.npz"), **self.given, target=self.target)
        self.draw_adapters()

    def draw_adapters(self):
        draw = np.random.default_rng(7)
        self.adapters, self.beside = {}, {}
        for name in [name for parts in self.names.values() for name in parts]:
            out, width = self.rows[name]
            a = (draw.standard_normal((RANK, width)) / np.sqrt(width)).astype(np.float32)
            b = (draw.standard_normal((out, RANK)) * 0.05).astype(np.float32)
            self.adapters[name + ".lora_A"], self.adapters[name + ".lora_B"] = a, b
        self.file = os.path.join(self.folder, "adapters.safetensors")
        save_file({f"base_model.model.{k}.weight": v for k, v in self.adapters.items()}, self.file,
                  metadata={"r": str(RANK), "lora_alpha": str(ALPHA)})

    def floats(self):
        """Weights that are trained whole beside adapters: those of norms and biases, as far as the file names them."""
        return [t.name for t in self.model.graph.initializer if t.name.endswith(("norm.weight", "layernorm.weight", ".bias"))
                and t.data_type == onnx.TensorProto.FLOAT and len(t.dims) == 1]

    def shapes(self):
        return [f"--shape={k}:{'x'.join(map(str, v.shape))}" for k, v in self.batch.items()]

    def reference(self, steps=1, lr=0.0, epsilon=1e-3):
        """Logits, loss and gradients of the first step, and adapters after `steps` of AdamW."""
        adapters = {k: torch.from_numpy(v).double().requires_grad_() for k, v in self.adapters.items()}
        stored = {t.name: t for t in self.model.graph.initializer}
        floats = {n: torch_graph.tensor_of(stored[n]).requires_grad_() for n in self.floats()}
        optimizer = torch.optim.AdamW(adapters.values(), lr=lr, eps=epsilon, weight_decay=0.01)
        for step in range(steps):
            layers = {node: (torch.cat([adapters[n + ".lora_A"] for n in parts]),
                             torch.block_diag(*(adapters[n + ".lora_B"] for n in parts)), ALPHA / RANK)
                      for node, parts in self.names.items()}
            values = torch_graph.run(self.model, self.batch, floats, layers)
            loss = torch.nn.functional.cross_entropy(values["logits"].flatten(0, 1), torch.from_numpy(self.target).flatten())
            optimizer.zero_grad()
            loss.backward()
            if step == 0:
                first = {"loss": loss.item()} | {k: v.grad.numpy().copy() for k, v in (adapters | floats).items() if v.grad is not None}
            optimizer.step()
        return first, {k: v.detach().numpy() for k, v in adapters.items()}

    # ---- what may differ ----

    def logits(self, ebb):
        out = os.path.join(self.folder, "logits.safetensors")
        ask(ebb, "run", self.path, "--data", os.path.join(self.folder, "batch.npz"), "--save", out, "--threads", "1", *self.shapes())
        return far(load_file(out)["logits"][self.valid], by_onnxruntime(self.path, self.batch)[self.valid])

    def common(self):
        also = self.floats()
        return ["--pass", f"lora:file={self.file},alpha={ALPHA}", "--threads", "1",
                "--loss", "cross-entropy:output=logits,axis=-1,ignore_index=-100",
                *(["--straight-through"] if self.straight else []), *self.shapes()], (",also=" + ";".join(also)) if also else ""

    def gradients(self, ebb, first):
        step, out = (os.path.join(self.folder, n) for n in ("step.onnx", "grads.safetensors"))
        words, also = self.common()
        words[1] += also
        ask(ebb, "grad", self.path, "-o", step, "--optimizer", "none", *words)
        ask(ebb, "run", step, "--data", os.path.join(self.folder, "batch.npz"), "--save", out, "--threads", "1")
        got = load_file(out)
        low = 1e-3 * max(np.abs(v).max() for k, v in first.items() if k != "loss")
        worst = {"loss": float(abs(got["loss"].reshape(()) - first["loss"]) / abs(first["loss"]))}
        for k, v in first.items():
            if k != "loss":
                mine = got.get(k + "_grad", got.get(k + ".weight_grad"))
                worst[k] = float("inf") if mine is None else far(mine, v, low)
        return max(worst.items(), key=lambda kv: kv[1])

    def steps(self, ebb, after, lr):
        out = os.path.join(self.folder, "after.safetensors")
        words, _ = self.common()
        ask(ebb, "train", self.path, "--data", os.path.join(self.folder, "batch.npz"), "--batch", "2", "--steps", "2",
            "--optimizer", f"adamw:lr={lr},epsilon=1e-3", "--save-adapter", out, *words)
        got = {k.removeprefix("base_model.model.").removesuffix(".weight"): v for k, v in load_file(out).items()}
        worst = {k: far(got[k], v) if k in got else float("inf") for k, v in after.items()}
        return max(worst.items(), key=lambda kv: kv[1])


def far(got, want, low=0.0):
    if got.size != want.size:
        return float("inf")
    return float(np.abs(got.reshape(want.shape).astype(np.float64) - want).max() / max(np.abs(want).max(), low, 1e-30))


LR = 1e-2


def run_case(ebb, name, folder):
    """A line of what differs how much; whether all of it is small enough."""
    case = Case(name, folder)
    most, most_of_steps = (2e-2, 1e-1) if case.straight else (5e-5, 5e-5) # a code on the edge falls either way
    missing = [n for n in case.layers if n not in case.names]
    said, ok = [], True
    logits = case.logits(ebb)
    first, after = case.reference(2, LR)
    at, gradients = case.gradients(ebb, first)
    where, steps = case.steps(ebb, after, LR)
    said += [f"logits {logits:.1e}", f"gradients {gradients:.1e} ({at})", f"steps {steps:.1e} ({where})", f"{len(case.names)} layers"]
    if missing:
        said.append(f"{len(missing)} without a name: {missing[:2]}")
    return ", ".join(said), logits <= most and gradients <= most and steps <= most_of_steps and bool(case.names)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ebb", required=True)
    parser.add_argument("--keep", help="folder for the files, which stay")
    parser.add_argument("--share", type=int, default=1 if os.environ.get("EBB_TEST_ALL") == "1" else 40,
                        help="one case in so many (40; EBB_TEST_ALL=1: 1)")
    parser.add_argument("cases", nargs="*")
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.ERROR)
    torch.set_num_threads(1)
    wrong = 0
    cases = given.cases or CASES[::given.share]
    if genai_files.MISSING:
        built = [name for name in cases if name.split("/")[1] in BUILT]
        print(f"{len(built)} cases left out: {genai_files.MISSING}")
        cases = [name for name in cases if name not in built]
    for name in cases:
        with tempfile.TemporaryDirectory() as scratch:
            folder = os.path.join(given.keep, name.replace("/", "_")) if given.keep else scratch
            os.makedirs(folder, exist_ok=True)
            try:
                said, ok = run_case(given.ebb, name, folder)
            except Exception as error: # any of three programs'; it is a line of the table
                said, ok = f"{type(error).__name__}: {str(error)[:500]}", False
        print(f"{'same' if ok else 'DIFFERS':8} {name:28} {said}", flush=True)
        wrong += not ok
    print(f"{wrong} differ")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
