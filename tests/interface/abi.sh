#!/usr/bin/env bash
# The binary interface of ebb.h against the recorded one, by libabigail: programs that were linked with an
# earlier libebb.so.0 must go on to work. What may grow is in abi.suppr.
#
#   tests/interface/abi.sh [LIBRARY]     EBB_GOLDEN=update records the interface anew: before a release, or where
#                                        the number behind libebb.so changes
#
# The library is built without types in its debug information, so one is made of the header: each function with an
# empty body. That the real one has these functions is compared by name.
set -euo pipefail
cd "$(dirname "$0")/../.."
recorded=tests/interface/libebb.abi
if ! command -v abidiff >/dev/null; then
    echo "SKIP: no abidiff (package abigail-tools): the interface is not compared"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# of HEADER: its interface, as libabigail writes it
of() {
    local name
    name=$(basename "$1" .h)
    gcc -E -P -I "$(dirname "$1")" "$1" | sed 's/__attribute__((visibility("default")))/EBB_SHOWN/g' | tr '\n' ' ' |
        sed 's/EBB_SHOWN\([^;]*\);/\n\1 { __builtin_trap(); }\n/g' >"$work/$name.c"
    gcc -std=gnu11 -w -g -O0 -shared -fPIC -Wl,-soname,libebb.so.0 -o "$work/$name.so" "$work/$name.c"
    abidw --no-corpus-path --no-comp-dir-path --no-show-locs --type-id-style hash "$work/$name.so"
}

# differ OLD NEW: whether what is in NEW breaks programs that were made for OLD
differ() {
    abidiff --no-added-syms --suppressions tests/interface/abi.suppr "$1" "$2" >"$work/report"
}

of include/ebb.h >"$work/now.abi"
if [ "${EBB_GOLDEN:-}" = update ]; then
    cp "$work/now.abi" "$recorded"
    echo "recorded: $(grep -c '<function-decl' "$recorded") functions"
    exit 0
fi
if ! differ "$recorded" "$work/now.abi"; then
    cat "$work/report"
    echo "ebb.h breaks programs that were linked with libebb.so.0: put new fields at the end, keep what there is"
    exit 1
fi

# The comparison sees what it is for.
changed() { # WHAT SED-SCRIPT EXPECTED
    sed "$2" include/ebb.h >"$work/changed.h"
    cmp -s include/ebb.h "$work/changed.h" && { echo "abi.sh: nothing to change for: $1"; exit 1; }
    of "$work/changed.h" >"$work/changed.abi"
    if differ "$work/now.abi" "$work/changed.abi"; then got=allowed; else got=refused; fi
    [ "$got" = "$3" ] || { cat "$work/report"; echo "abi.sh: $1 is $got, not $3"; exit 1; }
}
changed "a field in the midst of options" 's/^    const char \*optimizer;/    int64_t more;\n&/' refused
changed "a field at the end of options" 's/^} ebb_step_options;/    int64_t more;\n&/' allowed
changed "a field of an array" 's/^} ebb_named;/    int64_t more;\n&/' refused
changed "a function that is gone" '/ebb_dtype_text/d' refused
changed "another type of an argument" 's/ebb_set_dim(ebb_model \*model, const char \*symbol, int64_t/ebb_set_dim(ebb_model *model, const char *symbol, int32_t/' refused
changed "a function more" 's/^EBB_API const char \*ebb_version(void);/&\nEBB_API int ebb_more(void);/' allowed

if [ $# -gt 0 ]; then
    nm -D --defined-only "$1" | awk '$2 == "T" {print $3}' | grep '^ebb_' | sort >"$work/there"
    grep -o "elf-symbol name='[^']*'" "$work/now.abi" | cut -d "'" -f 2 | sort >"$work/said"
    diff "$work/said" "$work/there" || { echo "ebb.h (<) and the library (>) have different functions"; exit 1; }
fi
echo "the interface is that of libebb.so.0: $(grep -c '<function-decl' "$work/now.abi") functions"
