#!/usr/bin/env bash
# Every .c, .h and .cu is as clang-format 14 would write it. Exit code 77: not there, skipped.
cd "$(dirname "$0")/../.." || exit 1
for tool in clang-format-14 clang-format; do
    command -v "$tool" >/dev/null && "$tool" --version | grep -q 'version 14' && break
    tool=
done
[ -n "$tool" ] || { echo "SKIP: no clang-format 14"; exit 77; }
find api bench cli exec include kernels onnx passes rewrite samples tests \( -name '*.[ch]' -o -name '*.cu' \) -print0 |
    xargs -0 "$tool" --dry-run -Werror
