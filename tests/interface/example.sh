#!/usr/bin/env bash
# The program at the top of ebb.h, as it stands there, compiled as C and as C++, and run.
#   tests/interface/example.sh BUILD
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# What is indented in the first comment; samples/digits has its files.
awk '/\*\//{exit} /^ \*     /{print substr($0, 8); inside = 1; next} inside && /^ \*$/{print ""; next} {inside = 0}' \
    include/ebb.h >"$work/example.c"
cp "$work/example.c" "$work/example.cpp"
cp samples/digits/cnn.onnx "$work/model.onnx"
cp samples/digits/digits.npz "$work/data.npz"
run() { # COMPILER FILE
    "$1" -Wall -Wpedantic -Werror -I include -o "$work/example" "$work/$2" -L "$build" -lebb
    (cd "$work" && rm -f step.onnx && LD_LIBRARY_PATH=$build ./example && [ -s step.onnx ])
}
said=$(run cc example.c)
echo "$said"
[[ $said =~ ^loss\ [0-9]\.[0-9]{4}$ ]] || { echo "the example ends otherwise than it should"; exit 1; }
if command -v c++ >/dev/null; then
    [ "$(run c++ example.cpp)" = "$said" ] || { echo "compiled as C++ it says something else"; exit 1; }
else
    echo "no C++ compiler: the example is not tried by one"
fi
