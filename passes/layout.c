/* layout: images with channels last, as the convolutions of GPUs and of oneDNN want them.
 *
 *   before   x --Conv(w)--> BatchNormalization --> Relu --> Conv ... --> GlobalAveragePool
 *            [N, C, H, W] all the way
 *   after    x --Transpose--Pad--> ConvNhwc(Transpose(w)) --> BatchNormalization --> Relu --> ...
 *            [N, H, W, C], transposed only where an image comes in and where an operator needs the
 *            old order; batch norm sees [N H W, C], pooling [N, 1, H, W, C], which are views
 *
 * No value has a layout that its shape does not tell: an image with channels last is an ordinary
 * tensor [N, H, W, C]. So all operators, passes, rulers and runtimes know what lies where, and every
 * transpose is a node with a cost. Only the convolutions are operators of their own (ai.ebb.ConvNhwc
 * and its two gradients, in standard ONNX: Transpose, Conv, Transpose); batch norm of [N H W, C] and
 * a pool over three axes, one of them the channels with a window of 1, are standard ONNX as they are.
 */
