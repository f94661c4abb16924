"""PyTorch's peak memory of a training step on a GPU, found without one.

    with FakeTensorMode ──> the step of gpu.py ──> births and deaths of storages ──> the most alive

Tensors are fake: they have shapes, dtypes and the device "cuda", and no bytes. So PyTorch's own
choices for a GPU hold (what autocast casts, one byte an element for dropout's mask, fused
optimizers), but for two that ask a real device and are made here: attention is the flash kernel in
16 bits and the memory-efficient one in float32, and the graph of gradients is walked by `backward`
below, in the order of PyTorch's engine, which cannot be started.

Counted is what torch.cuda.max_memory_allocated counts of tensors: storages, each rounded up to the
allocator's 512 bytes. Not counted, so that a real peak is larger: workspaces of cuBLAS and cuDNN,
what a kernel takes and returns within one call (flash attention's sums for dq), and what the
allocator leaves unused at the end of a block.
"""
import contextlib
import heapq
import weakref

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

ROUND = 512  # bytes, of the caching allocator


class Live(TorchDispatchMode):
    """Live bytes, and the most there ever were since `begin`."""

    def __init__(self):
        super().__init__()
        self.known, self.now, self.most, self.at, self.step = {}, 0, 0, "", {}
        self.what = ""

    def see(self, tensor, what):
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self.known:
            return
        size = -(-storage.nbytes() // ROUND) * ROUND
        self.known[key] = (size, what, tuple(tensor.shape), str(tensor.dtype))
        self.now += size
        weakref.finalize(storage, self.forget, key)
        if self.now > self.most:
            self.most, self.at, self.step = self.now, what, dict(self.known)

    def forget(self, key):
        self.now -= self.known.pop(key)[0]

    def begin(self):
        self.most, self.at, self.step = self.now, "the start", dict(self.known)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if str(function).startswith("aten._fused_"):  # fused optimizers: all in place
            return None
        results = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(results):
            if isinstance(tensor, torch.Tensor) and tensor.device.type != "cpu":
                self.see(tensor, f"{self.what} {function}")
        return results

    def largest(self, count):
        """What stood at the peak, summed by who made it: (bytes, tensors, maker, dtype)."""
        sums = {}
        for size, what, shape, dtype in self.step.values():
            old = sums.get((what, shape, dtype), (0, 0))
            sums[what, shape, dtype] = (old[0] + size, old[1] + 1)
        rows = [(size, number, *key) for key, (size, number) in sums.items()]
        return sorted(rows, key=lambda row: -row[0])[:count]


# ---- the engine ----


def nodes_of(root):
    """Each node that the root reaches: how many edges lead to it."""
    wanted, stack = {root: 0}, [root]
    while stack:
        for node, _ in stack.pop().next_functions:
            if node is None:
                continue
            if node not in wanted:
                wanted[node] = 0
                stack.append(node)
            wanted[node] += 1
    return wanted


def shares(tensor, waiting):
    """Another gradient that waits has its storage."""
    storage = tensor.untyped_storage()._cdata
    return sum(other is not None and other.untyped_storage()._cdata == storage
               for grads in waiting.values() for other in grads) > 1


def as_told(grad, node, index):
    """A gradient as the node takes it: its input may have been broadcast, or of another dtype."""
    told = node._input_metadata[index]
    if tuple(grad.shape) != tuple(told.shape):
        grad = grad.sum_to_size(told.shape)
    return grad if grad.dtype == told.dtype else grad.to(told.dtype)


def hand_on(grads, edges, waiting):
    """Adds a node's results to what waits before the next ones; in place where nobody else has it."""
    for at, (node, index) in enumerate(edges):
        if node is None or grads[at] is None:
            continue
        grad = as_told(grads[at], node, index)
        grads[at] = None
        slots = waiting.setdefault(node, [None] * len(node._input_metadata))
        if slots[index] is None:
            slots[index] = grad
        elif shares(slots[index], waiting):
            slots[index] = slots[index] + grad
        else:
            slots[index] += grad


def accumulate(node, grad):
    with torch.no_grad():
        if node.variable.grad is None:
            node.variable.grad = grad.detach()
        else:
            node.variable.grad += grad


def backward(losses):
    """loss.backward(), a node at a time: the latest made first, parameters at once. What a node saved
    goes with it, so nobody else may hold the graph: the one loss is taken out of its list."""
    loss = losses.pop()
    wanted = nodes_of(loss.grad_fn)
    waiting = {loss.grad_fn: [torch.ones_like(loss)]}
    ready = [(-loss.grad_fn._sequence_nr(), 0, loss.grad_fn)]
    del loss
    order = 1
    with torch.no_grad():
        while ready:
            node = heapq.heappop(ready)[2]
            grads, edges = waiting.pop(node), node.next_functions
            del wanted[node]
            if node.name() == "torch::autograd::AccumulateGrad":
                accumulate(node, grads.pop())
                continue
            results = node(*grads)
            del grads, node
            hand_on(list(results) if isinstance(results, tuple) else [results], edges, waiting)
            del results
            for other, _ in edges:
                if other is None:
                    continue
                wanted[other] -= 1
                if wanted[other] == 0 and other in waiting:
                    first = other.name() == "torch::autograd::AccumulateGrad"
                    rank = -2**63 if first else -other._sequence_nr()
                    heapq.heappush(ready, (rank, order, other))
                    order += 1
            del edges


# ---- what PyTorch asks a device ----


def attention(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, **rest):
    """The kernel that a GPU of compute capability 8.0 or above takes where nothing is masked."""
    assert attn_mask is None and not rest.get("enable_gqa")
    if q.dtype == torch.float32:
        return torch.ops.aten._scaled_dot_product_efficient_attention(
            q, k, v, None, True, dropout_p, is_causal, scale=scale)[0]
    return torch.ops.aten._scaled_dot_product_flash_attention(
        q, k, v, dropout_p, is_causal, False, scale=scale)[0]


@contextlib.contextmanager
def replaced(*rows):
    """(where, name, what) for as long as this lasts; a name that is not there is added."""
    before = [(where, name, getattr(where, name)) for where, name, _ in rows]
    for where, name, what in rows:
        setattr(where, name, what)
    try:
        yield
    finally:
        for row in before:
            setattr(*row)


def a_gpu():
    """As if one were there, for whom asks PyTorch's Python; nothing may run."""
    rows = [(torch.nn.functional, "scaled_dot_product_attention", attention),
            (torch.cuda.amp.common, "amp_definitely_not_available", lambda: False),
            (torch.cuda, "is_bf16_supported", lambda *_, **__: True)]
    try:
        from transformers import masking_utils

        # Each row is one sequence; a real run looks, and builds no mask.
        rows.append((masking_utils, "find_packed_sequence_indices", lambda _: None))
    except ImportError:
        pass
    return replaced(*rows)


# ---- a step ----


def peak_of(make, steps=3):
    """make(): an object whose loss() and optimizer make a step (gpu.Torch), built on fake tensors.

    The bytes of the last step's peak, what made it (in words), what is there always, and a list of
    the largest (Live.largest)."""
    live = Live()
    with FakeTensorMode(), a_gpu():
        runner = make()
        tensors = [*runner.module.parameters(), *runner.module.buffers(), runner.target,
                   *runner.inputs.values()]
        for tensor in tensors:
            live.see(tensor, "given")
        given = live.now
        with live:
            for _ in range(steps):
                live.begin()
                runner.optimizer.zero_grad(set_to_none=True)
                live.what = "forward"
                losses = [runner.loss()]
                live.what = "backward"
                backward(losses)
                live.what = "optimizer"
                runner.optimizer.step()
        kept = sum(size for size, what, *_ in live.known.values() if "optimizer" in what)
    return {"peak_bytes": live.most, "at": live.at, "given_bytes": given, "state_bytes": kept,
            "largest": live.largest(12)}
