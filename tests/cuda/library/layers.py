#!/usr/bin/env python3
"""Makes layers.txt from ONNX models: every distinct convolution, pool, batch norm and attention.

    python3 tests/cuda/library/layers.py MODELS > tests/cuda/library/layers.txt

MODELS is a folder with NAME/ts.onnx. Needs the package onnx. The lines that say
what some device cannot do (refused ...) are written by hand below the table and are kept.
"""
import glob
import os
import sys

import onnx


IMAGES, SEQUENCES = 32, 8  # batch


def shapes_of(path):
    model = onnx.load(path, load_external_data=False)
    for tensor in list(model.graph.initializer):  # weights that lie elsewhere: the shape is enough
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            model.graph.input.append(onnx.helper.make_tensor_value_info(
                tensor.name, tensor.data_type, list(tensor.dims)))
            model.graph.initializer.remove(tensor)
    for value in model.graph.input[:2]:
        dims = value.type.tensor_type.shape.dim
        if dims and dims[0].dim_param == "batch":
            dims[0].dim_value = IMAGES if len(dims) == 4 else SEQUENCES
    model = onnx.shape_inference.infer_shapes(model, data_prop=True)
    values = list(model.graph.value_info) + list(model.graph.input) + list(model.graph.output)
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in values}
    shapes.update({t.name: list(t.dims) for t in model.graph.initializer})
    return model.graph, shapes


def attributes(node):
    return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}


def window(node, rank):
    a = attributes(node)
    return (a.get("strides", [1] * rank), a.get("dilations", [1] * rank),
            a.get("pads", [0] * (2 * rank)))


def readers(graph):
    found = {}
    for node in graph.node:
        for name in node.input:
            found.setdefault(name, []).append(node)
    return found


def only(nodes, kind):
    return nodes[0] if len(nodes) == 1 and nodes[0].op_type in kind else None


def conv(node, shapes):
    x, w = shapes[node.input[0]], shapes[node.input[1]]
    strides, dilations, pads = window(node, len(w) - 2)
    group = attributes(node).get("group", 1)
    return ["conv", x[0], x[1], w[0], group, *x[2:], *w[2:], *strides, *dilations, *pads,
            int(len(node.input) > 2)]


def pool(node, shapes):
    x, y = shapes[node.input[0]], shapes[node.output[0]]
    a = attributes(node)
    size = a.get("kernel_shape", x[2:])  # a global pool sees all of its input
    strides, _, pads = window(node, len(size))
    kind = "max_pool" if node.op_type == "MaxPool" else \
        "average_pool" if a.get("count_include_pad", 1) else "average_pool_inside"
    return [kind, x[0], x[1], *x[2:], *y[2:], *size, *strides, *pads]


def norm(node, shapes, reads):
    x = shapes[node.input[0]]
    then = "none"
    after = reads.get(node.output[0], [])
    if only(after, ("Relu",)):
        then = "relu"
    elif only(after, ("Add",)) and only(reads.get(after[0].output[0], [])[:1], ("Relu",)):
        then = "add_relu"
    return ["batch_norm", *x, then]


def attention(node, shapes, made, name):
    """From its Softmax: the scores [B, H, Sq, Sk], and the width of a head from what made them."""
    b, h, queries, keys = shapes[node.input[0]]
    step, masked = made.get(node.input[0]), False
    while step.op_type != "MatMul":
        masked = masked or step.op_type in ("Add", "Where") and len(shapes[step.output[0]]) == 4
        step = made[step.input[1] if step.op_type == "Where" else step.input[0]]
    width = shapes[step.input[0]][3] or shapes[step.input[1]][2]
    if width == 0:  # both were cut from one projection: ask what the heads are joined to again
        width = next(s[2] for s in shapes.values() if len(s) == 3 and s[:2] == [b, queries]) // h
    # GPT-2 adds a triangle; with no padding in the batch it is the causal mask.
    masks = ["causal", "bias"] if name.startswith("gpt2") else ["bias"] if masked else ["none"]
    return [["attention", b, h, queries, keys, width, m] for m in masks]


def rows(name, path):
    graph, shapes = shapes_of(path)
    reads, made = readers(graph), {o: n for n in graph.node for o in n.output}
    for node in graph.node:
        if node.op_type == "Conv":
            yield conv(node, shapes)
        elif node.op_type in ("MaxPool", "AveragePool", "GlobalAveragePool"):
            yield pool(node, shapes)
        elif node.op_type == "BatchNormalization":
            yield norm(node, shapes, reads)
        elif node.op_type == "Softmax" and len(shapes[node.input[0]]) == 4:
            yield from attention(node, shapes, made, name)


def main():
    table = {}
    for path in sorted(glob.glob(os.path.join(sys.argv[1], "*", "ts.onnx"))):
        name = os.path.basename(os.path.dirname(path))
        for row in rows(name, path):
            table.setdefault(" ".join(map(str, row)), []).append(name)
    own = os.path.join(os.path.dirname(os.path.abspath(__file__)), "layers.txt")
    by_hand = [l for l in open(own) if l.startswith(("refused ", "## "))] \
        if os.path.exists(own) else []
    print("# Made by layers.py; read by test_cudnn_plans.c. Each distinct layer once: operator, sizes, models.\n"
          "# conv N C K groups, in HxW, kernel HxW, strides, dilations, pads (begins, ends), bias\n"
          "# max_pool, average_pool, average_pool_inside N C, in HxW, out HxW, window HxW, strides, pads\n"
          "# batch_norm N C H W, what follows\n"
          "# attention B H Sq Sk D, mask")
    for row in sorted(table, key=lambda r: (r.split()[0], [int(n) for n in r.split()[1:4]], r)):
        models = table[row]
        print(row, ",".join(f"{m}*{models.count(m)}" for m in sorted(set(models))))
    sys.stdout.write("".join(by_hand))


main()
