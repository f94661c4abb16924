"""Writes tests/gradients/recorded_spatial.txt: what record.py does, for operators on images.

    python3 tests/gradients/record_spatial.py        (needs torch and torchvision)
"""
import torch
import torch.nn.functional as F
import torchvision.ops

from record import case, cases, draw, ints, positive, write

cases.clear()
torch.manual_seed(8)

for mode, attrs, options in [
        ("nearest", 'mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"', {}),
        ("bilinear", 'mode = "linear"', dict(align_corners=False)),
        ("bilinear", 'mode = "linear", coordinate_transformation_mode = "align_corners"', dict(align_corners=True)),
        ("bicubic", 'mode = "cubic"', dict(align_corners=False)),
        ("bicubic", 'mode = "cubic", coordinate_transformation_mode = "align_corners"', dict(align_corners=True)),
        ("bilinear", 'mode = "linear", antialias = 1, exclude_outside = 1', dict(align_corners=False, antialias=True)),
        ("bicubic", 'mode = "cubic", antialias = 1, cubic_coeff_a = -0.5, exclude_outside = 1',
         dict(align_corners=False, antialias=True))]:
    for size in [(2, 3), (8, 10), (5, 4)]:
        case(f"y = Resize <{attrs}> (x, , , s)",
             lambda x, s, size=size, mode=mode, options=options: F.interpolate(x, size, mode=mode, **options),
             x=draw(1, 2, 4, 5), s=ints(1, 2, *size))
case('y = Resize <mode = "linear"> (x, , , s)', lambda x, s: F.interpolate(x, (3, 5, 2), mode="trilinear"),
     x=draw(1, 1, 2, 3, 4), s=ints(1, 1, 3, 5, 2))
case('y = Resize <mode = "linear"> (x, , , s)', lambda x, s: F.interpolate(x, 7, mode="linear"), x=draw(2, 2, 4), s=ints(2, 2, 7))

case("y = Col2Im <pads = [1, 0, 1, 0], strides = [2, 1], dilations = [1, 2]> (x, s, k)",
     lambda x, s, k: F.fold(x, (5, 6), (2, 3), dilation=(1, 2), padding=(1, 0), stride=(2, 1)),
     x=draw(2, 12, 6), s=ints(5, 6), k=ints(2, 3))
case("y = CenterCropPad <axes = [2, 3]> (x, s)", lambda x, s: F.pad(x[:, :, 1:4], (1, 2)), x=draw(1, 2, 5, 3), s=ints(3, 6))
case("y = MaxUnpool <kernel_shape = [2, 2], strides = [2, 2]> (x, i)",
     lambda x, i: F.max_unpool2d(x, i - torch.tensor([0, 16]).reshape(1, 2, 1, 1), 2),
     x=draw(1, 2, 2, 2), i=torch.tensor([0, 6, 9, 15, 17, 22, 24, 31]).reshape(1, 2, 2, 2))
for p in (1, 2, 3, 4):
    case(f"y = LpPool <kernel_shape = [3, 2], strides = [2, 1], p = {p}> (x)",
         lambda x, p=p: F.lp_pool2d(x.abs(), p, (3, 2), (2, 1)), x=draw(1, 2, 6, 5))
    case(f"y = GlobalLpPool <p = {p}> (x)", lambda x, p=p: torch.linalg.vector_norm(x, p, (2, 3), keepdim=True), x=draw(2, 2, 3, 4))
for size in (1, 3, 5):
    case(f"y = LRN <size = {size}, alpha = 0.25, beta = 0.75, bias = 1.5> (x)",
         lambda x, size=size: F.local_response_norm(x, size, 0.25, 0.75, 1.5), x=draw(2, 4, 3, 2))

for mode, name in [("nearest", "nearest"), ("bilinear", "linear"), ("bicubic", "cubic")]:
    for padding in ("zeros", "border", "reflection"):
        for align in (0, 1):
            # Beyond the border ONNX moves the place inside before a cubic is laid through its neighbours, PyTorch does not.
            inside = 0.7 if (name, padding) == ("cubic", "border") else 1.25
            case(f'y = GridSample <mode = "{name}", padding_mode = "{padding}", align_corners = {align}> (x, x1)',
                 lambda x, g, mode=mode, padding=padding, align=align:
                 F.grid_sample(x, g, mode, padding, align_corners=bool(align)),
                 x=draw(1, 2, 4, 5), x1=draw(1, 2, 3, 2) * inside)
for padding in ("zeros", "border", "reflection"):
    case(f'y = GridSample <padding_mode = "{padding}"> (x, x1)',
         lambda x, g, padding=padding: F.grid_sample(x, g, "bilinear", padding, align_corners=False),
         x=draw(2, 1, 3, 2, 4), x1=draw(2, 2, 1, 2, 3) * 1.25)
for align in (0, 1):
    case(f"y = AffineGrid <align_corners = {align}> (x, s)",
         lambda x, s, align=align: F.affine_grid(x, (2, 1, 3, 4), bool(align)), x=draw(2, 2, 3), s=ints(2, 1, 3, 4))
    case(f"y = AffineGrid <align_corners = {align}> (x, s)",
         lambda x, s, align=align: F.affine_grid(x, (1, 1, 2, 3, 2), bool(align)), x=draw(1, 3, 4), s=ints(1, 1, 2, 3, 2))
case("y = DeformConv (x, x1, x2)", lambda x, w, o: torchvision.ops.deform_conv2d(x, o, w),
     x=draw(1, 2, 4, 5), x1=draw(2, 2, 2, 3), x2=draw(1, 12, 3, 3))
case("y = DeformConv <group = 2, offset_group = 2, strides = [2, 1], pads = [1, 1, 1, 1], dilations = [1, 2]> (x, x1, x2, x3, x4)",
     lambda x, w, o, b, m: torchvision.ops.deform_conv2d(x, o, w, b, (2, 1), (1, 1), (1, 2), m),
     x=draw(2, 4, 5, 4), x1=draw(4, 2, 2, 2), x2=draw(2, 16, 3, 4), x3=draw(4), x4=draw(2, 8, 3, 4))

rois = torch.tensor([[0.5, 1, 4, 5.5], [1, 0, 7, 3], [-3, -2, 2.5, 9]])
for ratio in (0, 1, 2, 3):
    for mode, aligned in [("half_pixel", True), ("output_half_pixel", False)]:
        case(f'y = RoiAlign <output_height = 3, output_width = 2, spatial_scale = 0.75, sampling_ratio = {ratio}, '
             f'coordinate_transformation_mode = "{mode}"> (x, r, i)',
             lambda x, r, i, ratio=ratio, aligned=aligned: torchvision.ops.roi_align(
                 x, torch.cat([i.double()[:, None], r], 1), (3, 2), 0.75, ratio, aligned),
             x=draw(2, 2, 5, 6), r=rois, i=ints(1, 0, 1))

for mode, name in [("reflect", "reflect"), ("replicate", "edge"), ("circular", "wrap")]:
    case(f'y = Pad <mode = "{name}"> (x, p)', lambda x, p, mode=mode: F.pad(x, (3, 1, 2, 2), mode),
         x=draw(1, 2, 3, 4), p=ints(0, 0, 2, 3, 0, 0, 2, 1))
for mode, name in [("reflect", "reflect"), ("replicate", "edge"), ("circular", "wrap")]:
    case(f'y = Pad <mode = "{name}"> (x, p, , a)', lambda x, p, a, mode=mode: F.pad(x, (2, -1), mode),
         x=draw(2, 2, 5), p=ints(2, -1), a=ints(-1))

boxes = torch.tensor([[0, 0.5, 1, 4, 5.5], [1, 1, 0, 7, 3], [1, -3, -2, 2.5, 9], [0, 3, 3, 2, 2.5], [1, -9, -9, -5, -4]])
for scale, rows, columns in [(1.0, 3, 2), (0.75, 2, 7), (2.0, 1, 1)]:
    case(f"y = MaxRoiPool <pooled_shape = [{rows}, {columns}], spatial_scale = {scale}> (x, r)",
         lambda x, r, scale=scale, rows=rows, columns=columns: torchvision.ops.roi_pool(x, r, (rows, columns), scale),
         x=draw(2, 2, 5, 6), r=boxes)

if __name__ == "__main__":
    write("recorded_spatial.txt")
