#!/usr/bin/env bash
# What is installed, used as somebody does who has nothing else: samples/five_verbs.c by pkg-config, shared and
# static, by find_package, as C and as C++; the manual page; completion.
#
#   tests/package.sh BUILD           installs BUILD into a folder of its own, and uses it from there
#   tests/package.sh --bare BUILD    makes the .deb files of BUILD, and installs, uses and removes them in a bare
#                                    Debian 12 (debootstrap, as root, some minutes), as a user who is not root
set -euo pipefail
cd "$(dirname "$0")/.."
source=$PWD
work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT

# It leaves its step where it runs.
tried() {
    (cd "$work" && "$1" "$source/samples/digits/cnn.onnx" "$source/samples/digits/digits.npz")
}

# use PREFIX: everything below is done with what lies there.
use() {
    local libraries
    libraries=$(dirname "$(find "$1" -name ebb.pc)")
    export PKG_CONFIG_PATH=$libraries
    local redefine=()
    [ "$1" = /usr ] || redefine=("--define-variable=prefix=$1" "--define-variable=libdir=$(dirname "$libraries")"
        "--define-variable=includedir=$1/include")
    export LD_LIBRARY_PATH=$(dirname "$libraries")
    # shellcheck disable=SC2046
    cc -o "$work/shared" samples/five_verbs.c $(pkg-config "${redefine[@]}" --cflags --libs ebb)
    tried "$work/shared"
    if command -v c++ >/dev/null 2>&1; then
        printf '#include <ebb.h>\n#include <cstdio>\nint main() { std::puts(ebb_version()); }\n' >"$work/version.cpp"
        # shellcheck disable=SC2046
        c++ -o "$work/version" "$work/version.cpp" $(pkg-config "${redefine[@]}" --cflags --libs ebb)
        [ "$("$work/version")" = "$("$1/bin/ebb" --version | cut -d ' ' -f 2)" ]
    else
        echo "no C++ compiler: the header is not tried by one"
    fi
    # What the archive needs is suggested by the package, and not there where it is bare.
    if [ -f "$(dirname "$libraries")/libebb.a" ] && [ "$1" != /usr ]; then
        # shellcheck disable=SC2046
        cc -o "$work/static" samples/five_verbs.c $(pkg-config "${redefine[@]}" --cflags ebb) \
            "$(dirname "$libraries")/libebb.a" $(pkg-config "${redefine[@]}" --static --libs ebb | sed 's/-lebb\>//')
        (unset LD_LIBRARY_PATH; tried "$work/static")
    fi
    mkdir -p "$work/project"
    printf '%s\n' 'cmake_minimum_required(VERSION 3.16)' 'project(user C)' 'find_package(ebb 0.1 REQUIRED)' \
        "add_executable(user $PWD/samples/five_verbs.c)" 'target_link_libraries(user PRIVATE ebb::ebb)' \
        >"$work/project/CMakeLists.txt"
    cmake -S "$work/project" -B "$work/project/build" -DCMAKE_PREFIX_PATH="$1" >"$work/log" 2>&1 &&
        cmake --build "$work/project/build" >>"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
    tried "$work/project/build/user"
    grep -q '^.SS train' "$1/share/man/man1/ebb.1"
    completes "$1/share/bash-completion/completions/ebb"
}

# The words that bash offers behind a few beginnings.
completes() {
    # shellcheck disable=SC1090
    source "$1"
    offers() { # WORDS... -- EXPECTED
        local words=()
        while [ "$1" != -- ]; do words+=("$1"); shift; done
        COMP_WORDS=("${words[@]}") COMP_CWORD=$((${#words[@]} - 1))
        _ebb
        [ "${COMPREPLY[*]}" = "$2" ] || { echo "behind '${words[*]}' bash offers '${COMPREPLY[*]}', not '$2'"; exit 1; }
    }
    offers ebb trai -- train
    offers ebb train --precision "" -- "bf16 fp16"
    offers ebb grad --pass sign -- sign-mask
    offers ebb grad --teac -- --teacher
}

if [ "$1" = --bare ]; then
    build=$2
    (cd "$build" && cpack >/dev/null)
    root=$work/root
    debootstrap --variant=minbase --include=gcc,g++,libc6-dev,cmake,make,pkg-config bookworm "$root" >"$work/log" 2>&1 ||
        { tail -n 20 "$work/log"; exit 1; }
    mkdir -p "$root/packages" "$root/home/user/ebb/tests"
    cp "$build"/*.deb "$root/packages"
    cp -r samples "$root/home/user/ebb"
    cp tests/package.sh "$root/home/user/ebb/tests"
    chroot "$root" sh -c 'apt-get update -qq && apt-get install -qq -y --no-install-recommends /packages/*.deb' \
        >"$work/log" 2>&1 || { tail -n 20 "$work/log"; exit 1; }
    chroot "$root" sh -c 'useradd user && chown -R user /home/user'
    chroot "$root" su user -c 'cd /home/user/ebb && tests/package.sh --installed'
    chroot "$root" sh -c 'apt-get purge -qq -y ebb libebb-dev libebb0' >/dev/null 2>&1
    left=$(find "$root/usr" -name '*ebb*' ! -path '*/locale/*' -newer "$work/log" | head)
    [ -z "$left" ] || { echo "left behind: $left"; exit 1; }
elif [ "$1" = --installed ]; then
    use /usr
else
    cmake --install "$1" --prefix "$work/prefix" >/dev/null
    use "$work/prefix"
fi
echo "installed, used$([ "$1" != --bare ] || echo ", removed"): $source"
