#!/usr/bin/env bash
# Each kernel of libebb_cuda.so can be launched, with as many threads as it may be launched with: what
# only a device would refuse otherwise.
#   resources.sh LIBRARY CUOBJDUMP     exit code 77: no cuobjdump, skipped
#
#   PTX               .entry NAME ... .maxntid 256   gpu.h's EBB_GLOBAL says it of every kernel
#   for each device   NAME: REG, SHARED              registers, in eights, x 256 are at most 65,536
#
# A step of 8 registers a thread is what a warp is given. Shared memory is asked for at launches (host/
# runtime.c has its limit), so what is compiled in is next to nothing: 1 KiB is the device's own.
library=$1 tool=$2
[ -x "$tool" ] || { echo "SKIP: no cuobjdump (of the CUDA toolkit, or nvidia-cuda-cuobjdump of PyPI)"; exit 77; }
[ -r "$library" ] || { echo "SKIP: $library is not built"; exit 77; }
{ "$tool" --dump-ptx "$library" && "$tool" --dump-resource-usage "$library"; } | awk '
    /\.entry [^ ]*\(/ {
        sub(/.*\.entry */, ""); sub(/[ (].*/, "")
        entry = $0
        entries[entry] = 1
    }
    $1 == ".maxntid" { # the most of those of one name
        threads = $2 * $3 * $4
        if (threads > most[entry]) most[entry] = threads
    }
    $1 == "arch" { device = $3 }
    $1 == "Function" { name = $2; sub(/:$/, "", name) }
    $1 ~ /^REG:/ {
        for (i = 1; i <= NF; i++) { split($i, part, ":"); of[part[1]] = part[2] }
        count++
        devices[device]++
        registers = int((of["REG"] + 7) / 8) * 8
        if (!(name in most)) { wrong++; print device " " name ": for how many threads it is compiled is not said" }
        else if (registers * most[name] > 65536) { wrong++; print device " " name ": " of["REG"] " registers, " most[name] " threads" }
        if (of["SHARED"] > 1024) { wrong++; print device " " name ": " of["SHARED"] " bytes of static shared memory" }
        if (of["STACK"] >= 512) big[of["STACK"] " bytes of local memory a thread: " device " " name] = 1
    }
    END {
        for (entry in entries) if (!(entry in most)) { wrong++; print entry ": no .maxntid" }
        for (k in big) print k | "sort -rn"
        close("sort -rn")
        for (device in devices) print device ": " devices[device] " kernels"
        print count + 0 " kernels, " wrong + 0 " cannot be launched"
        exit count == 0 || wrong > 0
    }'
