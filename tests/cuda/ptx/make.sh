#!/usr/bin/env bash
# The PTX of one source of kernels, as nvcc emits it for a device: optimised, as it is shipped.
#   make.sh FOLDER NAME     FOLDER/NAME.ptx; options are those of the build that $EBB_PTX_BUILD names
# EBB_PTX_TARGET: 90, or 80.
set -euo pipefail
folder=$1 name=$2
mkdir -p "$folder"
exec 9> "$folder/$name.lock"
flock 9
[ -s "$folder/$name.ptx" ] && exit 0
command=$(sed -n "s|^ *\"command\": \"\(.*/nvcc .*/$name\.cu .*\)\",\$|\1|p" "$EBB_PTX_BUILD/compile_commands.json" | head -n 1)
[ -n "$command" ] || { echo "make.sh: the build has no $name.cu for nvcc" >&2; exit 1; }
command=$(sed -E 's/ --generate-code=[^ ]*//g; s/ -Xcicc=-O0//; s/ -Xptxas=-O0//; s/ -o [^ ]*//; s/ -c / /; s/ -x cu / /; s/\\"/"/g' <<< "$command")
cd "$EBB_PTX_BUILD"
eval "$command -ptx -lineinfo -arch=compute_${EBB_PTX_TARGET:-90} -o '$folder/$name.part'"
mv "$folder/$name.part" "$folder/$name.ptx"
