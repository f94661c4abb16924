"""Adapters go from ebb to PEFT and back: the logits of both on qwen2_float, whose weights transformers gets from the file.

    python3 tests/models/peft_folder.py build/release/ebb ../shared/models_q4/qwen2_float [FOLDER WITH peft]

Run by hand: it needs peft, transformers, torch, onnx and safetensors.
"""
import json, os, subprocess, sys, tempfile
for extra in sys.argv[3:]:
    sys.path.insert(0, extra)
import numpy as np, onnx, torch
from onnx import numpy_helper
from safetensors.numpy import load_file, save_file
from transformers import AutoModelForCausalLM, Qwen2Config, Qwen2ForCausalLM
from peft import LoraConfig, PeftModel, get_peft_model
ebb = sys.argv[1]; folder = sys.argv[2]
m = json.load(open(folder + "/manifest.json"))
config = Qwen2Config(**{k: v for k, v in m["config"].items() if k != "rope_parameters"}, rope_parameters=m["config"]["rope_parameters"])
def base():
    model = Qwen2ForCausalLM(config).eval()
    inits = {t.name: numpy_helper.to_array(t) for t in onnx.load(folder + "/model.onnx").graph.initializer}
    state = model.state_dict()
    for name, places in m["float_parameters"].items():
        p = places[0]; x = inits[p["initializer"]]
        x = x.T if p.get("transposed") else x
        if name in state: state[name] = torch.from_numpy(np.ascontiguousarray(x))
    model.load_state_dict(state); return model
ref = load_file(folder + "/reference.safetensors")
data = {k[6:]: v for k, v in ref.items() if k.startswith("input/") and v.size}
tmp = tempfile.mkdtemp(); np.savez(tmp + "/b.npz", **data); np.savez(tmp + "/t.npz", **data, target=ref["target"])
ids = {k: torch.from_numpy(v) for k, v in data.items()}
def torch_logits(model):
    with torch.no_grad(): return model(**ids).logits.numpy()
def run(*a):
    r = subprocess.run([ebb, *a], capture_output=True, text=True)
    assert r.returncode == 0, (a, r.stderr); return r.stdout + r.stderr
def ebb_logits(adapter=None):
    run("run", folder + "/model.onnx", "--data", tmp + "/b.npz", "--save", tmp + "/o.safetensors", *(["--adapter", adapter] if adapter else []))
    return load_file(tmp + "/o.safetensors")["logits"]
valid = ref["valid"][..., None]
def far(a, b, what):
    d = np.abs((a - b) * valid).max() / np.abs(b).max(); print(f"{what}: {d:.2e}"); assert d < 1e-5, what
far(ebb_logits(), torch_logits(base()), "base")
# ours -> PEFT
out = tmp + "/ours"
print(run("train", folder + "/model.onnx", "--data", tmp + "/t.npz", "--batch", "2", "--steps", "5", "--loss", "cross-entropy:output=logits,axis=-1,ignore_index=-100",
    "--optimizer", "adamw:lr=0.02", "--pass", "lora:rank=4,alpha=8,rslora=on,target=all-linear", "--save-adapter", out))
loaded = PeftModel.from_pretrained(base(), out)
far(ebb_logits(out), torch_logits(loaded), "ebb's folder in PEFT")
assert np.abs(ebb_logits(out) - ebb_logits()).max() > 1e-2
# PEFT -> ours
for kw in (dict(target_modules=["q_proj", "v_proj"]), dict(target_modules="all-linear", use_rslora=True), dict(target_modules=["o_proj", "up_proj"], alpha_pattern={"up_proj": 3}, rank_pattern={"up_proj": 2})):
    torch.manual_seed(3)
    theirs = get_peft_model(base(), LoraConfig(r=4, lora_alpha=6, task_type="CAUSAL_LM", init_lora_weights=False, **kw)).eval()
    theirs.save_pretrained(tmp + "/theirs")
    far(ebb_logits(tmp + "/theirs"), torch_logits(theirs), f"PEFT's folder in ebb, {kw}")
