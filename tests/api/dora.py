"""What PEFT makes of DoRA beside the two layers of test_lora.c, in float64: loss, gradients and merged weights.

    dora.py              writes dora.json beside itself; run by hand (peft 0.21, torch 2.15)
"""
import json
import os

import torch
from peft import LoraConfig, get_peft_model

ROWS, IN, MID, OUT, RANK, ALPHA = 6, 5, 7, 3, 2, 3
HERE = os.path.dirname(os.path.abspath(__file__))


def draw(seed, *shape):
    """As test_lora.c draws: float32 numbers."""
    count, numbers = 1, []
    for n in shape:
        count *= n
    for _ in range(count):
        seed = (seed * 1664525 + 1013904223) % 2**32
        numbers.append(seed / 2**32 * 2 - 1)
    return torch.tensor(numbers, dtype=torch.float32).double().reshape(shape)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(IN, MID, bias=False), torch.nn.Linear(MID, OUT)
        self.double()

    def forward(self, x):
        return self.down(torch.tanh(self.up(x)))


def main():
    net, weights = Net(), draw(1, IN * MID + OUT * MID + OUT)
    up, down, bias = weights.split([IN * MID, OUT * MID, OUT])
    with torch.no_grad():
        net.up.weight.copy_(up.reshape(IN, MID).T)
        net.down.weight.copy_(down.reshape(OUT, MID))
        net.down.bias.copy_(bias)
    peft = get_peft_model(net, LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=["up", "down"], use_dora=True))
    trained = {n.replace("base_model.model.", "").replace(".default", "").replace("vector.weight", "vector"): p
               for n, p in peft.named_parameters() if p.requires_grad}
    starts = {n: p.detach().tolist() for n, p in trained.items() if n.endswith("vector")}
    for i, (name, p) in enumerate(trained.items()):
        p.data = draw(7 + i, *p.shape) * 0.5 + (1.5 if name.endswith("vector") else 0)
    loss = torch.nn.functional.mse_loss(peft(draw(2, ROWS, IN)), draw(3, ROWS, OUT))
    loss.backward()
    said = {"loss": loss.item(), "starts": starts, "given": {n: p.tolist() for n, p in trained.items()},
            "grads": {n: p.grad.tolist() for n, p in trained.items()}}
    merged = peft.merge_and_unload()
    said["merged"] = {"up.weight": merged.up.weight.T.tolist(), "down.weight": merged.down.weight.tolist()}
    with open(os.path.join(HERE, "dora.json"), "w") as file:
        json.dump(said, file)
        file.write("\n")


main()
