"""Makes what is kept beside this file; nobody needs to run it.

    pip install torch onnx numpy tokenizers
    python make.py

tokenizer.json       byte-level BPE of 512 tokens, learned from ../text/pride.txt, and chatml's marks
model_q4.onnx        a small Llama-like decoder, trained from nothing on that text and then kept in 4 bits, written as
                     onnxruntime-genai's model builder writes one: MatMulNBits in blocks of 32, GroupQueryAttention
                     with rotary positions inside, a past of keys and values
chat.jsonl           questions to a harbour master and his answers, our own text: a fact in three ways of asking;
heldout.jsonl        each fact in a fourth, for evaluation
"""
import json
import math
import pathlib

import numpy
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from torch import nn
from torch.nn import functional

here = pathlib.Path(__file__).parent
VOCABULARY, WIDTH, INNER, HEADS, SHARED, LAYERS, CONTEXT, EPSILON, BLOCK = 512, 96, 256, 4, 2, 2, 256, 1e-6, 32
HEAD = WIDTH // HEADS
MARKS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]

FACTS = [  # subject, question word and verb, answer
    ("the ferry to Orla", "leave", "At half past seven, from the north quay."),
    ("the last bus", "go", "At ten at night, and on Sundays at eight."),
    ("the fish market", "open", "At five in the morning, when the boats are in."),
    ("the lock", "close", "An hour before low water."),
    ("the harbour office", "open", "At nine, but never on Mondays."),
    ("the lighthouse", "light up", "When the sun is six degrees below the sea."),
    ("the fog horn", "sound", "Every thirty seconds, as long as the far pier is hidden."),
    ("the mail boat", "arrive", "On Tuesdays and Fridays, with the tide."),
    ("the slipway", "flood", "At spring tides, up to the third bollard."),
    ("the crane", "work", "From Monday to Friday, in winds below force six."),
    ("the bakery", "bake", "At four; the first loaves are for the crews."),
    ("the swing bridge", "turn", "On the hour, if a mast is waiting."),
    ("the pilot", "come aboard", "Two miles out, at the red buoy."),
    ("the ice house", "close", "At noon, and it is empty by then in August."),
    ("the sailing school", "start", "In May, when the water has twelve degrees."),
    ("the dredger", "leave", "In March, after the last storm has gone through."),
    ("the chandler", "open", "At eight; knock if you need rope earlier."),
    ("the tide", "turn", "At a quarter past two today."),
]
ASKED = ["When does {} {}?", "Do you know when {} will {}?", "Tell me, please: when does {} {}?",
         "I need to know when {} is going to {}."]


def write_rows():
    for name, asked in (("chat", ASKED[:3]), ("heldout", ASKED[3:])):
        with open(here / f"{name}.jsonl", "w") as out:
            for ask in asked:
                for subject, verb, answer in FACTS:
                    messages = [{"role": "user", "content": ask.format(subject, verb)},
                                {"role": "assistant", "content": answer}]
                    out.write(json.dumps({"messages": messages}) + "\n")


def make_tokenizer(text):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.train_from_iterator(text.splitlines(keepends=True), trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(MARKS), initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    t.add_special_tokens(MARKS)
    t.save(str(here / "tokenizer.json"), pretty=False)
    (here / "tokenizer_config.json").write_text(json.dumps({"eos_token": MARKS[0]}) + "\n")
    return t


def norm(x, scale):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + EPSILON) * scale


def tables():
    angle = torch.outer(torch.arange(CONTEXT).float(), 10000.0 ** (-torch.arange(0, HEAD, 2).float() / HEAD))
    return angle.cos(), angle.sin()


def turn(x, cos, sin):  # halves, not neighbours
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm_1, self.norm_2 = nn.Parameter(torch.ones(WIDTH)), nn.Parameter(torch.ones(WIDTH))
        sides = {"q": (WIDTH, WIDTH), "k": (WIDTH, SHARED * HEAD), "v": (WIDTH, SHARED * HEAD), "o": (WIDTH, WIDTH),
                 "gate": (WIDTH, INNER), "up": (WIDTH, INNER), "down": (INNER, WIDTH)}
        for name, (a, b) in sides.items():
            setattr(self, name, nn.Linear(a, b, bias=False))

    def forward(self, x, cos, sin):
        batch, length, _ = x.shape
        h = norm(x, self.norm_1)
        q, k, v = (f(h).view(batch, length, -1, HEAD).transpose(1, 2) for f in (self.q, self.k, self.v))
        q, k = turn(q, cos, sin), turn(k, cos, sin)
        k, v = (t.repeat_interleave(HEADS // SHARED, 1) for t in (k, v))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(batch, length, WIDTH))
        h = norm(x, self.norm_2)
        return x + self.down(functional.silu(self.gate(h)) * self.up(h))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm, self.head = nn.Parameter(torch.ones(WIDTH)), nn.Linear(WIDTH, VOCABULARY, bias=False)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02 if "down" not in name else 0.02 / math.sqrt(2 * LAYERS))

    def forward(self, ids):
        cos, sin = (t[: ids.shape[1]] for t in tables())
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.head(norm(x, self.norm))


def train_base(ids, steps=700, batch=4, length=64):
    torch.manual_seed(0)
    model, ids = Decoder(), torch.tensor(ids)
    best = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1, betas=(0.9, 0.95))
    for step in range(steps):
        best.param_groups[0]["lr"] = 3e-3 * min(1, (step + 1) / 50) * (0.05 + 0.95 * (1 - step / steps))
        at = torch.randint(len(ids) - length - 1, (batch,))
        rows = torch.stack([ids[i : i + length + 1] for i in at])
        loss = functional.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        best.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        best.step()
        if step % 100 == 0 or step == steps - 1:
            print(step, round(loss.item(), 3), flush=True)
    return model


class Writer:
    def __init__(self):
        self.nodes, self.weights = [], []

    def store(self, name, array):
        self.weights.append(numpy_helper.from_array(numpy.ascontiguousarray(array), name))
        return name

    def node(self, op, name, inputs, outputs=None, domain="", **attributes):
        outputs = outputs or [f"{name}/output_0"]
        self.nodes.append(helper.make_node(op, inputs, outputs, name=name, domain=domain, **attributes))
        return outputs[0]

    def q4(self, path, x, weight, out=None):
        """weight [N, K] in blocks of 32 of a row: code 8 is 0, the largest number is code 0 or 16 scales away from it."""
        w = weight.detach().numpy()
        n, k = w.shape
        blocks = w.reshape(n, k // BLOCK, BLOCK)
        far = numpy.take_along_axis(blocks, numpy.abs(blocks).argmax(-1)[..., None], -1)
        scales = numpy.where(far == 0, 1, far / -8).astype(numpy.float32)
        codes = numpy.clip(numpy.rint(blocks / scales) + 8, 0, 15).astype(numpy.uint8)
        packed = codes[..., ::2] | codes[..., 1::2] << 4
        stem = path.strip("/").replace("/", ".")
        inputs = [x, self.store(f"{stem}.MatMul.weight_Q4", packed),
                  self.store(f"{stem}.MatMul.weight_scales", scales[..., 0])]
        return self.node("MatMulNBits", f"{path}/MatMul_Q4", inputs, [out or f"{path}/MatMul/output_0"],
                         "com.microsoft", K=k, N=n, bits=4, block_size=BLOCK)


def write_layer(w, i, layer, x, h, lengths):
    path = f"/model/layers.{i}"
    packed = w.q4(f"{path}/attn/qkv_proj", h, torch.cat([layer.q.weight, layer.k.weight, layer.v.weight]))
    y = w.node("GroupQueryAttention", f"{path}/attn/GroupQueryAttention",
               [packed, "", "", f"past_key_values.{i}.key", f"past_key_values.{i}.value", *lengths, "cos_cache", "sin_cache"],
               [f"{path}/attn/GroupQueryAttention/output_0", f"present.{i}.key", f"present.{i}.value"], "com.microsoft",
               num_heads=HEADS, kv_num_heads=SHARED, scale=HEAD ** -0.5, do_rotary=1, rotary_interleaved=0)
    y = w.q4(f"{path}/attn/o_proj", y, layer.o.weight)
    h, x = skip(w, f"{path}/post_attention_layernorm", x, y, layer.norm_2)
    gate, up = w.q4(f"{path}/mlp/gate_proj", h, layer.gate.weight), w.q4(f"{path}/mlp/up_proj", h, layer.up.weight)
    on = w.node("Mul", f"{path}/mlp/act_fn/Mul", [gate, w.node("Sigmoid", f"{path}/mlp/act_fn/Sigmoid", [gate])])
    return x, w.q4(f"{path}/mlp/down_proj", w.node("Mul", f"{path}/mlp/Mul", [on, up]), layer.down.weight)


def skip(w, path, x, y, scale):
    stem = path.strip("/").replace("/", ".") + ".weight"
    w.node("SkipSimplifiedLayerNormalization", f"{path}/SkipLayerNorm",
           [x, y, w.store(stem, scale.detach().numpy())],
           [f"{path}/output_0", "", "", f"{path}/output_3"], "com.microsoft", epsilon=EPSILON)
    return f"{path}/output_0", f"{path}/output_3"


def write_lengths(w):
    one, at_1 = w.store("one", numpy.array([1], numpy.int64)), w.store("at_1", numpy.array(1, numpy.int64))
    path = "/model/attn_mask_reformat"
    total = w.node("ReduceSum", f"{path}/ReduceSum", ["attention_mask", one], keepdims=0)
    last = w.node("Cast", f"{path}/Sub/Cast", [w.node("Sub", f"{path}/Sub", [total, one])], to=TensorProto.INT32)
    size = w.node("Gather", f"{path}/Gather", [w.node("Shape", f"{path}/Shape", ["attention_mask"]), at_1], axis=0)
    return last, w.node("Cast", f"{path}/Gather/Cast", [size], to=TensorProto.INT32)


def write_model(model):
    w = Writer()
    lengths = write_lengths(w)
    for name, table in zip(("cos_cache", "sin_cache"), tables()):
        w.store(name, table.numpy())
    x = w.node("Gather", "/model/embed_tokens/Gather",
               [w.store("model.embed_tokens.weight", model.embed.weight.detach().numpy()), "input_ids"])
    first = w.store("model.layers.0.input_layernorm.weight", model.layers[0].norm_1.detach().numpy())
    h = w.node("SimplifiedLayerNormalization", "/model/layers.0/input_layernorm/LayerNorm", [x, first],
               epsilon=EPSILON, axis=-1, stash_type=1)
    for i, layer in enumerate(model.layers):
        x, y = write_layer(w, i, layer, x, h, lengths)
        last = i + 1 == LAYERS
        path = f"/model/layers.{i + 1}/" + ("final_norm_layernorm" if last else "input_layernorm")
        h, x = skip(w, path, x, y, model.norm if last else model.layers[i + 1].norm_1)
    w.q4("/lm_head", h, model.head.weight, "logits")
    kv = lambda kind, length, i, what: helper.make_tensor_value_info(
        f"{kind}.{i}.{what}", TensorProto.FLOAT, ["batch_size", SHARED, length, HEAD])
    ids = [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch_size", "sequence_length"]),
           helper.make_tensor_value_info("attention_mask", TensorProto.INT64, ["batch_size", "total_sequence_length"])]
    pairs = [(i, what) for i in range(LAYERS) for what in ("key", "value")]
    outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch_size", "sequence_length", VOCABULARY])]
    graph = helper.make_graph(
        w.nodes, "main_graph", ids + [kv("past_key_values", "past_sequence_length", *p) for p in pairs],
        outputs + [kv("present", "total_sequence_length", *p) for p in pairs], w.weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)],
                             ir_version=10)
    onnx.save(made, here / "model_q4.onnx")


def main():
    write_rows()
    text = (here.parent / "text" / "pride.txt").read_text()
    ids = make_tokenizer(text).encode(text).ids
    model = train_base(ids)
    write_model(model)


main()
