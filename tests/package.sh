#!/usr/bin/env bash
# What is installed, used as somebody does who has nothing else: README's commands; samples/five_verbs.c by pkg-config,
# shared and static, and by find_package, as C and as C++; the manual page; completion.
#
#   tests/package.sh BUILD           installs BUILD into a folder of its own, and uses it from there
#   tests/package.sh --bare BUILD    makes the .deb files of BUILD, installs them in a bare Debian 12 (debootstrap, some
#                                    minutes), uses them as a user who is not root, and removes them. Exit code 77:
#                                    without root, debootstrap or a network there is no such Debian
set -euo pipefail
cd "$(dirname "$0")/.."
source=$PWD
work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT

# quietly COMMAND...: what it says is shown where it fails.
quietly() {
    "$@" >"$work/log" 2>&1 || { tail -n 20 "$work/log"; return 1; }
}

# It leaves its step where it runs.
tried() {
    (cd "$work" && "$1" "$source/samples/digits/cnn.onnx" "$source/samples/digits/digits.npz" >said)
    grep -q '^epoch 3: last loss 0' "$work/said"
}

# The commands below "The command" in README.md, one after the other, as they stand there.
run_readme() {
    mkdir "$work/readme"
    ln -s "$source/samples" "$work/readme"
    awk '/^## /{here = /^## The command/} here && sub(/^\$ /, ""){goes = 1} goes{print; goes = /\\$/}' README.md \
        >"$work/readme/commands"
    [ "$(grep -c '^ebb' "$work/readme/commands")" -gt 4 ]
    (cd "$work/readme" && quietly sh -eux commands && [ -s used.onnx ])
}

# use PREFIX: everything below is done with what lies there.
use() {
    local libraries redefine=() needs
    libraries=$(dirname "$(dirname "$(find "$1/lib" -name ebb.pc)")")
    export PKG_CONFIG_PATH=$libraries/pkgconfig
    if [ "$1" != /usr ]; then
        redefine=("--define-variable=prefix=$1" "--define-variable=libdir=$libraries" "--define-variable=includedir=$1/include")
        export LD_LIBRARY_PATH=$libraries PATH=$1/bin:$PATH
    fi
    run_readme
    # A solver and what it computes with are opened by the one planner that asks.
    if command -v readelf >/dev/null; then
        needs=$(readelf -d "$libraries/libebb.so" | grep -i -E 'NEEDED.*(cbc|clp|blas|lapack|opencl)' || true)
        [ -z "$needs" ] || { echo "libebb needs $needs"; exit 1; }
    fi
    # shellcheck disable=SC2046
    cc -o "$work/shared" samples/five_verbs.c $(pkg-config "${redefine[@]}" --cflags --libs ebb)
    tried "$work/shared"
    # What the archive needs is suggested by the package, and not there where it is bare.
    if [ -f "$libraries/libebb.a" ] && [ "$1" != /usr ]; then
        # shellcheck disable=SC2046
        cc -o "$work/static" samples/five_verbs.c $(pkg-config "${redefine[@]}" --cflags ebb) \
            "$libraries/libebb.a" $(pkg-config "${redefine[@]}" --static --libs ebb | sed 's/-lebb\>//')
        (unset LD_LIBRARY_PATH; tried "$work/static")
    fi
    mkdir -p "$work/project"
    cp samples/five_verbs.c "$work/project/user.c"
    cp samples/five_verbs.c "$work/project/also.cpp"
    printf '%s\n' 'cmake_minimum_required(VERSION 3.16)' 'project(user LANGUAGES ${LANGUAGE})' 'find_package(ebb 0.1 REQUIRED)' \
        'add_executable(user ${SOURCE})' 'target_link_libraries(user PRIVATE ebb::ebb)' >"$work/project/CMakeLists.txt"
    found_by_cmake "$1" C user.c
    if command -v c++ >/dev/null; then
        # shellcheck disable=SC2046
        c++ -o "$work/shared" "$work/project/also.cpp" $(pkg-config "${redefine[@]}" --cflags --libs ebb)
        tried "$work/shared"
        found_by_cmake "$1" CXX also.cpp
    else
        echo "SKIP: no C++ compiler, so C++ is not tried"
    fi
    grep -q '^.SS train' "$1/share/man/man1/ebb.1"
    completes "$1/share/bash-completion/completions/ebb"
}

# found_by_cmake PREFIX LANGUAGE SOURCE
found_by_cmake() {
    quietly cmake -S "$work/project" -B "$work/project/$2" -DCMAKE_PREFIX_PATH="$1" -DLANGUAGE="$2" -DSOURCE="$3"
    quietly cmake --build "$work/project/$2"
    tried "$work/project/$2/user"
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
    offers ebb train --precision "" -- "bf16 fp16 fp32"
    offers ebb grad --pass sign -- sign-mask
    offers ebb grad --teac -- --teacher
}

# bare BUILD
bare() {
    local root=$work/root packages path left=""
    [ "$(id -u)" -eq 0 ] && command -v debootstrap >/dev/null || { echo "SKIP: a bare Debian wants root and debootstrap"; exit 77; }
    (cd "$1" && quietly cpack)
    quietly debootstrap --variant=minbase --include=gcc,g++,libc6-dev,cmake,make,pkg-config bookworm "$root" ||
        { echo "SKIP: there is no bare Debian"; exit 77; }
    mkdir -p "$root/packages" "$root/home/user/ebb/tests"
    cp "$1"/*.deb "$root/packages"
    cp -r samples README.md "$root/home/user/ebb"
    cp tests/package.sh "$root/home/user/ebb/tests"
    packages=$(for path in "$root"/packages/*.deb; do dpkg-deb -f "$path" Package; done)
    export LC_ALL=C DEBIAN_FRONTEND=noninteractive
    unset TMPDIR # which may name a folder that is not in there
    # shellcheck disable=SC2016
    quietly chroot "$root" sh -ec 'apt-get update; apt-get install -y --no-install-recommends /packages/*.deb'
    chroot "$root" sh -ec 'useradd user && chown -R user /home/user'
    chroot "$root" su user -c 'cd /home/user/ebb && tests/package.sh --installed'
    # shellcheck disable=SC2086
    chroot "$root" dpkg -L $packages | grep '^/.*ebb' | sort -u >"$work/files"
    [ "$(wc -l <"$work/files")" -gt 10 ]
    # shellcheck disable=SC2086
    quietly chroot "$root" apt-get purge -y $packages
    while read -r path; do
        [ ! -e "$root$path" ] || left="$left $path"
    done <"$work/files"
    [ -z "$left" ] || { echo "left behind:$left"; exit 1; }
    # shellcheck disable=SC2086
    echo "in a bare Debian:" $packages
}

case $1 in
--bare) bare "$2" ;;
--installed) use /usr ;;
*)
    cmake --install "$1" --prefix "$work/prefix" >/dev/null
    use "$work/prefix"
    ;;
esac
echo "installed, used$([ "$1" != --bare ] || echo ", removed")"
