#!/usr/bin/env bash
# Sets up what is missing, builds, and fine-tunes a language model in 4 bits on a small chat, on the CPU: the model stays
# as it is, an adapter is trained beside it. Everything it needs is in this repository. Results go to out/.
set -euo pipefail
cd "$(dirname "$0")/.."
. cmake/setup.sh
# shellcheck disable=SC2086
install_packages $packages $optional_packages
cmake_options=(-DEBB_TESTS=OFF)
build release ebb_cli
chat=samples/chat
mkdir -p out

build/release/ebb train $chat/model_q4.onnx --data $chat/chat.jsonl --tokenizer $chat/tokenizer.json --sequence 96 --pack \
    --pass lora:rank=8,target=all-linear --loss cross-entropy:output=logits,axis=-1 --optimizer adamw:lr=5e-3 \
    --batch 4 --epochs "${1:-12}" --seed 1 --eval $chat/heldout.jsonl --keep best --save-adapter out/harbour
