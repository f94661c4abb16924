"""What bench/gpu.py measures: models, batches and precisions, and the exports of what is not there.

Modules are made from the classes of torchvision and transformers with weights drawn anew: nothing is
downloaded.
"""
import sys
import warnings


def resnet50():
    import torchvision

    return torchvision.models.resnet50()


def resnet10():
    from torchvision.models.resnet import BasicBlock, ResNet

    return ResNet(BasicBlock, [1, 1, 1, 1], num_classes=10)


def vit(size, patch, layers, heads, hidden):
    import torchvision

    return torchvision.models.VisionTransformer(
        image_size=size, patch_size=patch, num_layers=layers, num_heads=heads, hidden_dim=hidden,
        mlp_dim=4 * hidden, num_classes=1000 if size == 224 else 10)


def bert(attention, layers, heads, hidden, words=30522):
    from transformers import BertConfig, BertForSequenceClassification

    return BertForSequenceClassification(BertConfig(
        num_labels=2, num_hidden_layers=layers, num_attention_heads=heads, hidden_size=hidden,
        intermediate_size=4 * hidden, vocab_size=words, attn_implementation=attention))


def gpt2(attention, layers, heads, hidden, words=50257):
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(
        n_layer=layers, n_head=heads, n_embd=hidden, vocab_size=words, use_cache=False,
        bos_token_id=None, eos_token_id=None, attn_implementation=attention))


class Case:
    """A model at one batch and precision. make(attention): the module; attention: sdpa or eager."""

    def __init__(self, model, make, optimizer, batch, *, size=None, sequence=None, words=0,
                 classes=2, bf16=True, channels_last=False):
        self.model, self.make, self.optimizer, self.batch = model, make, optimizer, batch
        self.size, self.sequence, self.words, self.classes = size, sequence, words, classes
        self.bf16, self.channels_last = bf16, channels_last
        self.each_token = classes == 0  # a target for each token, of as many classes as words

    @property
    def name(self):
        parts = [self.model, f"b{self.batch}"]
        parts += [f"s{self.sequence}"] if self.sequence else []
        parts += ["bf16" if self.bf16 else "fp32"]
        return " ".join(parts + (["channels last"] if self.channels_last else []))

    @property
    def tiled(self):
        return not self.model.startswith("resnet")

    def arrays(self, numpy):
        rng, batch = numpy.random.default_rng(0), self.batch
        if self.size:
            return {"input": rng.standard_normal((batch, 3, self.size, self.size), numpy.float32),
                    "target": rng.integers(0, self.classes, batch)}
        shape = (batch, self.sequence)
        return {"input_ids": rng.integers(0, self.words, shape),
                "attention_mask": numpy.ones(shape, numpy.int64),
                "target": rng.integers(0, self.words, shape) if self.each_token
                else rng.integers(0, self.classes, batch)}


def image_case(model, make, optimizer, batch, size, **more):
    classes = 1000 if size == 224 else 10
    return Case(model, lambda attention: make(), optimizer, batch, size=size, classes=classes, **more)


FULL = [  # what matters most first
    image_case("resnet50", resnet50, "momentum", 256, 224, channels_last=True),
    Case("gpt2", lambda a: gpt2(a, 12, 12, 768), "adamw", 16, sequence=1024, words=50257, classes=0),
    Case("bert_large", lambda a: bert(a, 24, 16, 1024), "adamw", 16, sequence=512, words=30522),
    image_case("vit_b16", lambda: vit(224, 16, 12, 12, 768), "adamw", 128, 224),
    Case("bert_base", lambda a: bert(a, 12, 12, 768), "adamw", 32, sequence=512, words=30522),
    image_case("resnet50", resnet50, "momentum", 128, 224, bf16=False),
]
SMALL = [
    image_case("resnet10", resnet10, "momentum", 8, 32, bf16=False),
    image_case("resnet10", resnet10, "momentum", 8, 32,
               channels_last=True),
    Case("bert_small", lambda a: bert(a, 2, 2, 32, 100), "adamw", 32, sequence=32, words=100),
    Case("gpt2_small", lambda a: gpt2(a, 2, 2, 32, 100), "adamw", 32, sequence=32, words=100,
         classes=0),
    image_case("vit_small", lambda: vit(32, 8, 2, 2, 32), "adamw", 64, 32),
]


def logits_of(module, inputs):
    return module(inputs["input"]) if "input" in inputs else module(**inputs).logits


def export(case, path):
    """The module as PyTorch's own exporter writes it, for training."""
    import numpy
    import torch

    class Logits(torch.nn.Module):
        def __init__(self, module, names):
            super().__init__()
            self.module, self.names = module, names

        def forward(self, *inputs):
            return logits_of(self.module, dict(zip(self.names, inputs)))

    print(f"exporting {path}", file=sys.stderr, flush=True)
    warnings.simplefilter("ignore")  # of the exporter: some hundred
    path.parent.mkdir(parents=True, exist_ok=True)
    two = Case(case.model, case.make, case.optimizer, 2, size=case.size, sequence=case.sequence,
               words=case.words, classes=case.classes)
    arrays = two.arrays(numpy)
    del arrays["target"]
    unfinished = path.with_suffix(".part")
    torch.manual_seed(0)
    torch.onnx.export(
        Logits(case.make("eager").train(), list(arrays)), tuple(map(torch.from_numpy, arrays.values())),
        str(unfinished), dynamo=False, opset_version=17, do_constant_folding=False,
        training=torch.onnx.TrainingMode.TRAINING, input_names=list(arrays), output_names=["logits"],
        dynamic_axes={name: {0: "batch"} for name in (*arrays, "logits")})
    unfinished.rename(path)
