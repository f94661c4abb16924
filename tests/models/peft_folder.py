"""peft_folder.py: adapters go from ebb to PEFT and back, and both compute the same logits.

    PYTHON tests/models/peft_folder.py --ebb build/release/ebb

PYTHON is one that has peft, transformers, torch, onnx and safetensors; without them the test skips. The models
are qwen2_float and qwen2_q4 of ../shared/models_q4, whose weights transformers gets from the file: of the second,
decoded. QA-LoRA is PEFT's own forward of it, which PEFT offers beside GPTQ alone.

Exit codes: 0, 1 where something differs, 77 where the packages or the models are not here.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FOLDER = os.path.join(os.path.dirname(SOURCE), "shared", "models_q4")
SKIPPED = 77
sys.dont_write_bytecode = True
try:
    import numpy as np
    import onnx
    import torch
    from onnx import numpy_helper
    from peft import LoraConfig, PeftModel, get_peft_model
    from peft.tuners.lora.layer import Linear
    from peft.tuners.lora.variants import QALoraLinearVariant
    from safetensors.numpy import load_file
    from transformers import AutoConfig, AutoModelForCausalLM
except ImportError as error:
    print(f"SKIP: {error}: give a Python that has peft, transformers, torch, onnx and safetensors")
    sys.exit(SKIPPED)


def decoded(tensors, layer):
    """[N, K] of a MatMulNBits of 4 bits without zero points."""
    codes, scales = tensors[layer["tensors"]["codes"]], tensors[layer["tensors"]["scales"]]
    levels = np.stack([codes & 15, codes >> 4], -1).reshape(layer["N"], -1).astype(np.float32) - 8
    scales = scales.reshape(layer["N"], -1).repeat(layer["block_size"], 1)
    return (levels * scales)[:, :layer["K"]]


class Case:
    """One model: its batch, and the framework's with the file's weights."""

    def __init__(self, ebb, name, tmp):
        self.ebb, self.tmp, self.folder = ebb, tmp, os.path.join(FOLDER, name)
        self.model = os.path.join(self.folder, "model.onnx")
        with open(os.path.join(self.folder, "manifest.json")) as file:
            self.manifest = json.load(file)
        reference = load_file(os.path.join(self.folder, "reference.safetensors"))
        batch = {k[6:]: v for k, v in reference.items() if k.startswith("input/") and v.size}
        self.valid = reference["valid"][..., None]
        self.ids = {k: torch.from_numpy(v) for k, v in batch.items()}
        np.savez(f"{tmp}/b.npz", **batch)
        np.savez(f"{tmp}/t.npz", **batch, target=reference["target"])

    def base(self):
        config = dict(self.manifest["config"])
        config["tie_word_embeddings"] = config.get("tie_word_embeddings", True) and not self.manifest["quantised_layers"]
        net = AutoModelForCausalLM.from_config(AutoConfig.for_model("qwen2", **config)).eval()
        tensors = {t.name: numpy_helper.to_array(t) for t in onnx.load(self.model).graph.initializer}
        state = net.state_dict()
        for name, places in self.manifest["float_parameters"].items():
            value = tensors[places[0]["initializer"]]
            state[name] = torch.from_numpy(np.ascontiguousarray(value.T if places[0].get("transposed") else value))
        for layer in self.manifest["quantised_layers"]:
            state[layer["module"] + ".weight"] = torch.from_numpy(decoded(tensors, layer))
        net.load_state_dict(state)
        return net

    def ask(self, *words):
        done = subprocess.run([self.ebb, *words], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{words[0]}: {done.stderr}")

    def train(self, passes, out, merge=False):
        self.ask("train", self.model, "--data", f"{self.tmp}/t.npz", "--batch", "2", "--steps", "5",
                 "--loss", "cross-entropy:output=logits,axis=-1,ignore_index=-100", "--optimizer", "adamw:lr=0.02",
                 "--pass", passes, "--save-adapter", out, *(["--save-model", f"{self.tmp}/m.onnx"] if merge else []))

    def ours(self, adapter=None, model=None):
        self.ask("run", model or self.model, "--data", f"{self.tmp}/b.npz", "--save", f"{self.tmp}/o.safetensors",
                 *(["--adapter", adapter] if adapter else []))
        return load_file(f"{self.tmp}/o.safetensors")["logits"]

    def theirs(self, net):
        with torch.no_grad():
            return net(**self.ids).logits.numpy()

    def far(self, a, b, what):
        """Whether two logits differ, said."""
        distance = np.abs((a - b) * self.valid).max() / np.abs(b).max()
        print(f"{what}: {distance:.2e}")
        return not distance < 1e-5


def floats(ebb, tmp):
    case = Case(ebb, "qwen2_float", tmp)
    wrong = case.far(case.ours(), case.theirs(case.base()), "qwen2_float")
    for form in ("lora,rslora=on", "dora", "paca"):
        case.train(f"lora:rank=4,target=all-linear,form={form}", f"{tmp}/{form}", merge=True)
        net = PeftModel.from_pretrained(case.base(), f"{tmp}/{form}")
        there = case.ours(f"{tmp}/{form}")
        wrong += np.abs(there - case.ours()).max() < 1e-2
        wrong += case.far(there, case.theirs(net), f"ebb's folder of {form} in PEFT")
        wrong += case.far(case.ours(model=f"{tmp}/m.onnx"), case.theirs(net.merge_and_unload()), f"ebb's model with {form} merged, and PEFT's")
    for words in (dict(target_modules=["q_proj", "v_proj"]), dict(target_modules="all-linear", use_rslora=True),
                  dict(target_modules=["q_proj", "down_proj"], use_dora=True),
                  dict(target_modules=["o_proj", "up_proj"], alpha_pattern={"up_proj": 3}, rank_pattern={"up_proj": 2})):
        torch.manual_seed(3)
        config = LoraConfig(r=4, lora_alpha=6, task_type="CAUSAL_LM", init_lora_weights=False, **words)
        net = get_peft_model(case.base(), config).eval()
        net.save_pretrained(f"{tmp}/theirs")
        wrong += case.far(case.ours(f"{tmp}/theirs"), case.theirs(net), f"PEFT's folder in ebb, {words}")
    return wrong


def few_bits(ebb, tmp):
    case = Case(ebb, "qwen2_q4", tmp)
    wrong = case.far(case.ours(), case.theirs(case.base()), "qwen2_q4")
    case.train("lora:rank=4,alpha=8,target=all-linear", f"{tmp}/q4")
    wrong += case.far(case.ours(f"{tmp}/q4"), case.theirs(PeftModel.from_pretrained(case.base(), f"{tmp}/q4")),
                      "ebb's folder in PEFT")
    case.train("lora:rank=4,alpha=8,form=dora,target=all-linear", f"{tmp}/dora")
    wrong += case.far(case.ours(f"{tmp}/dora"), case.theirs(PeftModel.from_pretrained(case.base(), f"{tmp}/dora")),
                      "ebb's DoRA in PEFT")
    plain = Linear.resolve_lora_variant
    Linear.resolve_lora_variant = lambda self, *, config, **_: QALoraLinearVariant() if config.use_qalora else None
    case.train("lora:rank=4,alpha=8,qalora=on,target=*self_attn*", f"{tmp}/blocks") # PEFT takes whole blocks alone
    wrong += case.far(case.ours(f"{tmp}/blocks"), case.theirs(PeftModel.from_pretrained(case.base(), f"{tmp}/blocks")),
                      "ebb's QA-LoRA in PEFT")
    Linear.resolve_lora_variant = plain
    return wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ebb", required=True)
    given = parser.parse_args()
    if not os.path.isdir(FOLDER):
        print("SKIP: no recorded models beside the repository")
        return SKIPPED
    with tempfile.TemporaryDirectory() as tmp:
        return int(floats(given.ebb, tmp) + few_bits(given.ebb, tmp) > 0)


if __name__ == "__main__":
    sys.exit(main())
