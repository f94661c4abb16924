"""Writes tests/gradients/recorded_losses.txt: losses with the values and gradients that PyTorch gives them.

    python3 tests/gradients/record_losses.py      (needs torch and torchvision; the tests need only the file)

A case is four lines: the loss as --loss has it, the predictions, the target, and value with gradient of the
predictions. A tensor is its type, its dims and its numbers. Both sides compute in float64.
"""
import pathlib

import torch
import torch.nn.functional as F
from torchvision.ops import sigmoid_focal_loss

torch.manual_seed(7)
torch.set_default_dtype(torch.float64)
lines = []


def draw(*dims, scale=2.0):
    return ((torch.rand(*dims) * 2 - 1) * scale * 64).round() / 64  # few digits


def show(x):
    kind = {torch.float64: "double", torch.int64: "int64"}[x.dtype]
    return " ".join([kind, str(x.dim()), *map(str, x.shape)] + [repr(v) for v in x.flatten().tolist()])


def case(spec, function, x, t):
    x = x.clone().requires_grad_(True)
    loss = function(x, t)
    (grad,) = torch.autograd.grad(loss, x)
    lines.extend([spec, show(x.detach()), show(t), " ".join(repr(v) for v in [loss.item(), *grad.flatten().tolist()])])


x, t = draw(4, 5), torch.tensor([2, 0, 4, 2])
gap = torch.tensor([2, -100, 4, 2])
w = torch.tensor([1.0, 0.5, 2.0, 0.25, 3.0])
text = "1,0.5,2,0.25,3"
for r in ["mean", "sum"]:
    case(f"cross-entropy:reduction={r}", lambda x, t: F.cross_entropy(x, t, reduction=r), x, t)
    case(f"cross-entropy:label-smoothing=0.1,reduction={r}",
         lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1, reduction=r), x, gap)
    case(f'cross-entropy:class-weights="{text}",reduction={r}', lambda x, t: F.cross_entropy(x, t, w, reduction=r), x, gap)
    case(f'cross-entropy:class-weights="{text}",label-smoothing=0.2,reduction={r}',
         lambda x, t: F.cross_entropy(x, t, w, label_smoothing=0.2, reduction=r), x, gap)
image, label = draw(4, 3, 2, 2), torch.randint(0, 3, (4, 2, 2))
label[0, 0, 1] = 255
three = torch.tensor([0.5, 1.0, 2.0])
case('cross-entropy:axis=1,ignore_index=255,class-weights="0.5;1;2",label-smoothing=0.1',
     lambda x, t: F.cross_entropy(x, t, three, label_smoothing=0.1, ignore_index=255), image, label)
words, next_word = draw(2, 3, 4), torch.randint(0, 4, (2, 3))
next_word[1, 2] = -100
four = torch.tensor([0.5, 1.0, 2.0, 1.5])
case('cross-entropy:axis=-1,class-weights="0.5 1 2 1.5",label-smoothing=0.1',
     lambda x, t: F.cross_entropy(x.flatten(0, 1), t.flatten(), four, label_smoothing=0.1), words, next_word)

y = draw(4, 3)
z = draw(4, 3)
z[0, 0], z[1, 1], z[2, 2] = y[0, 0] + 1, y[1, 1] - 0.5, y[2, 2]  # at the corners
for r in ["mean", "sum"]:
    case(f"mse:reduction={r}", lambda x, t: F.mse_loss(x, t, reduction=r), y, z)
    case(f"l1:reduction={r}", lambda x, t: F.l1_loss(x, t, reduction=r), y, z)
    case(f"huber:reduction={r}", lambda x, t: F.huber_loss(x, t, reduction=r), y, z)
    case(f"huber:delta=0.5,reduction={r}", lambda x, t: F.huber_loss(x, t, delta=0.5, reduction=r), y, z)
    case(f"smooth-l1:reduction={r}", lambda x, t: F.smooth_l1_loss(x, t, reduction=r), y, z)
    case(f"smooth-l1:beta=0.5,reduction={r}", lambda x, t: F.smooth_l1_loss(x, t, beta=0.5, reduction=r), y, z)

logits, yes = draw(4, 3, scale=3.0), (torch.rand(4, 3) < 0.4).double()
far = torch.tensor([[800.0, -800.0, 0.0], [40.0, -40.0, 100.0], [-1e3, 1e3, 1.0], [2.0, 3.0, -700.0]])
for r in ["mean", "sum"]:
    b = lambda x, t, p=None: F.binary_cross_entropy_with_logits(x, t, pos_weight=p, reduction=r)
    case(f"bce-logits:reduction={r}", b, logits, yes)
    case(f"bce-logits:pos-weight=2.5,reduction={r}", lambda x, t: b(x, t, torch.tensor(2.5)), logits, yes)
    case(f'bce-logits:pos-weight="0.5,1,4",reduction={r}', lambda x, t: b(x, t, torch.tensor([0.5, 1, 4])), logits, yes)
    case(f"focal:reduction={r}", lambda x, t: sigmoid_focal_loss(x, t, reduction=r), logits, yes)
    case(f"focal:gamma=1.5,alpha=0.75,reduction={r}",
         lambda x, t: sigmoid_focal_loss(x, t, alpha=0.75, gamma=1.5, reduction=r), logits, yes)
case("bce-logits:pos-weight=2.5", lambda x, t: F.binary_cross_entropy_with_logits(x, t, pos_weight=torch.tensor(2.5)), far, yes)
case("focal", lambda x, t: sigmoid_focal_loss(x, t, reduction="mean"), far, yes)
spots, mask = draw(4, 3, 2, 2), (torch.rand(4, 3, 2, 2) < 0.4).double()
case('bce-logits:pos-weight="0.5,1,4"',
     lambda x, t: F.binary_cross_entropy_with_logits(x, t, pos_weight=torch.tensor([0.5, 1, 4]).view(3, 1, 1)), spots, mask)


def dice(p, t, axes, smooth):
    return (1 - (2 * (p * t).sum(axes) + smooth) / ((p + t).sum(axes) + smooth)).mean()


def dice_of_classes(x, t, axes):
    p = x.softmax(1) * (t != 255).unsqueeze(1)
    return dice(p, torch.stack([t == c for c in range(x.shape[1])], 1).double(), axes, 1)


case("dice", lambda x, t: dice(x.sigmoid(), t, (2, 3), 1), spots, mask)
case("dice:over=batch,smooth=0.5", lambda x, t: dice(x.sigmoid(), t, (0, 2, 3), 0.5), spots, mask)
case("dice", lambda x, t: dice(x.sigmoid(), t, 1, 1), logits, yes)
case("dice:axis=1,ignore_index=255", lambda x, t: dice_of_classes(x, t, (2, 3)), image, label)
case("dice:axis=1,over=batch,ignore_index=255", lambda x, t: dice_of_classes(x, t, (0, 2, 3)), image, label)

same = torch.ones(4)
for r in ["mean", "sum"]:
    case(f"cosine:reduction={r}", lambda x, t: F.cosine_embedding_loss(x, t, same, reduction=r), y, z)
case("cosine", lambda x, t: F.cosine_embedding_loss(x, t, same), torch.cat([y[:3], y[3:] * 0]), z)

teacher = draw(4, 5)
heat = 2.5


def kl(x, t, r, heat=1.0):
    return F.kl_div(F.log_softmax(x / heat, 1), F.log_softmax(t / heat, 1), reduction=r, log_target=True) * heat**2


sure = teacher.softmax(1)
sure[0] = torch.tensor([0.0, 1, 0, 0, 0])
case("kl", lambda x, t: kl(x, t, "batchmean"), x, teacher)
case("kl:reduction=sum,temperature=2.5", lambda x, t: kl(x, t, "sum", heat), x, teacher)
case("kl:temperature=2.5", lambda x, t: kl(x, t, "batchmean", heat), x, teacher)
case("kl:target-is=probabilities", lambda x, t: F.kl_div(F.log_softmax(x, 1), t, reduction="batchmean"), x, sure)
case("kl:target-is=log-probabilities",
     lambda x, t: F.kl_div(F.log_softmax(x, 1), t, reduction="batchmean", log_target=True), x, teacher.log_softmax(1))
case("kl:axis=-1,temperature=2.5", lambda x, t: kl(x.flatten(0, 1), t.flatten(0, 1), "batchmean", heat), words, draw(2, 3, 4))



def focal(x, t, gamma=2.0, w=None, reduction="mean", ignore=-100):  # as Lin et al. have it, of the softmax
    each = F.cross_entropy(x, t, reduction="none", ignore_index=ignore)
    each = each * (1 - torch.exp(-each)) ** gamma * (1 if w is None else w[t.clamp_min(0) * (t != ignore)])
    return each.sum() if reduction == "sum" else each.sum() / (t != ignore).sum()


for r in ["mean", "sum"]:
    case(f"focal:axis=1,reduction={r}", lambda x, t: focal(x, t, reduction=r), x, gap)
    case(f'focal:axis=1,gamma=1.5,class-weights="{text}",reduction={r}', lambda x, t: focal(x, t, 1.5, w, r), x, gap)
case("focal:axis=1,gamma=1", lambda x, t: focal(x, t, 1.0), x, t)
case('focal:axis=1,ignore_index=255,class-weights="0.5;1;2"', lambda x, t: focal(x, t, w=three, ignore=255), image, label)
case("focal:axis=-1", lambda x, t: focal(x.flatten(0, 1), t.flatten()), words, next_word)


def ctc(x, t, reduction, blank=0, lengths=None, zero_infinity=False):
    n = (t != -100).sum(1)
    lengths = torch.full((x.shape[1],), x.shape[0]) if lengths is None else lengths
    return F.ctc_loss(x.log_softmax(2), t.clamp_min(0), lengths, n, blank, reduction, zero_infinity)


sounds = draw(7, 4, 5, scale=3.0)
said = torch.tensor([[1, 2, 2], [3, -100, -100], [-100, -100, -100], [4, 1, -100]])
for r in ["mean", "sum"]:
    case(f"ctc:time-axis=0,labels=3,reduction={r}", lambda x, t: ctc(x, t, r), sounds, said)
    case(f"ctc:time-axis=1,labels=3,reduction={r}", lambda x, t: ctc(x.transpose(0, 1), t, r), sounds.transpose(0, 1).contiguous(), said)
case("ctc:time-axis=1,labels=3,blank=4", lambda x, t: ctc(x.transpose(0, 1), t, "mean", 4),
     sounds.transpose(0, 1).contiguous(), torch.tensor([[1, 2, 2], [3, -100, -100], [0, 0, 0], [0, 1, -100]]))
case("ctc:time-axis=1,labels=2", lambda x, t: ctc(x.transpose(0, 1), t, "mean"), draw(2, 2, 4), torch.tensor([[1, 2], [3, -100]]))
case("ctc:time-axis=1,labels=1", lambda x, t: ctc(x.transpose(0, 1), t, "mean"), draw(2, 1, 4), torch.tensor([[1], [3]]))
case("ctc:time-axis=1,labels=40", lambda x, t: ctc(x.transpose(0, 1), t, "mean"), draw(2, 50, 2, scale=4.0),
     torch.tensor([[1] + [-100] * 39, [1] * 20 + [-100] * 20]))
case("ctc:time-axis=1,labels=3,zero-infinity=1", lambda x, t: ctc(x.transpose(0, 1), t, "mean", zero_infinity=True),
     draw(4, 3, 5), said)
short = torch.tensor([7, 4, 2, 3])
case("ctc:time-axis=1,labels=3,input-lengths=steps", lambda x, t: ctc(x.transpose(0, 1), t, "mean", lengths=short),
     sounds.transpose(0, 1).contiguous(), said)

pathlib.Path(__file__).with_name("recorded_losses.txt").write_text("\n".join(lines) + "\n")
print(len(lines) // 4, "cases")
