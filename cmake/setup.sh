# setup.sh: sourced by samples/quickstart.sh and tests/run.sh. Installs what is missing, and builds.
# On Debian with root, packages come from apt; elsewhere it says what to install.

packages="gcc libc6-dev cmake ninja-build pkg-config protobuf-c-compiler libprotobuf-c-dev libdnnl-dev libjansson-dev libzip-dev libjpeg62-turbo-dev libpng-dev libxxhash-dev"
# Without these ebb builds too, and says what is missing: the solver of the planner `ilp`, which is opened when it is
# asked for; text by a tokenizer.
optional_packages="coinor-libcbc3 libpcre2-dev libutf8proc-dev"

say() { printf '%s\n' "$*" >&2; }

missing_packages() {
    for package in "$@"; do
        dpkg -s "$package" 2>/dev/null | grep -q '^Status: install ok installed' || printf '%s ' "$package"
    done
}

# install_packages NAME...: those that are not there yet.
install_packages() {
    if ! command -v dpkg >/dev/null 2>&1; then
        say "not a Debian system: install what these Debian packages hold: $*"
        return 0
    fi
    local wanted
    wanted=$(missing_packages "$@")
    [ -z "$wanted" ] && return 0
    if [ "$(id -u)" -ne 0 ]; then
        say "run as root, or install: $wanted"
        return 1
    fi
    say "installing: $wanted"
    export DEBIAN_FRONTEND=noninteractive
    # shellcheck disable=SC2086
    apt-get install -qq -y --no-install-recommends $wanted >/dev/null 2>&1 && return 0
    apt-get update -qq && apt-get install -qq -y --no-install-recommends $wanted >/dev/null
}

# build PRESET [TARGET...]: quiet unless it fails.
build() {
    local preset=$1 log
    shift
    log=$(mktemp)
    say "building ($preset)"
    if ! { cmake --preset "$preset" "${cmake_options[@]}" && cmake --build "build/$preset" ${*:+--target "$@"}; } >"$log" 2>&1; then
        tail -n 40 "$log" >&2
        rm -f "$log"
        return 1
    fi
    rm -f "$log"
}
cmake_options=()
