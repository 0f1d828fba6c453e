#!/bin/sh
# Builds the benchmarks: microbench/build.sh HOST PREFIX OUTDIR
#
#   HOST    mpich, openmpi or any label; the compiler wrapper is $MPICC, or mpicc.HOST
#   PREFIX  where the library is installed; "-" builds the plain programs only
#   OUTDIR  receives each program with the library (patterns, latency, ...) and without it
#           (patterns-plain, ...)
#
# Programs that are newer than all sources and the library's headers stay.
set -eu

if [ $# -ne 3 ]; then
    sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
host=$1 prefix=$2 out=$3
here=$(cd "$(dirname "$0")" && pwd)
mpicc=${MPICC:-mpicc.$host}
flags="-std=gnu11 -O2 -Wall -Wextra ${CFLAGS:-}"
mkdir -p "$out"

if [ "$prefix" != - ]; then
    PKG_CONFIG_PATH="$prefix/lib/pkgconfig${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}"
    export PKG_CONFIG_PATH
    cflags=$(pkg-config --cflags mpix-rma)
    libs=$(pkg-config --libs mpix-rma)
fi

# How the programs in OUTDIR were made.
made_by=$out/made-by
now="$mpicc $flags $prefix $("$mpicc" --version | head -1)"
same=false
[ "$(cat "$made_by" 2>/dev/null)" != "$now" ] || same=true
rm -f "$made_by"

is_new() {
    $same && [ -e "$1" ] || return 1
    [ "$prefix" = - ] || [ -z "$(find "$prefix/include" -newer "$1" -print -quit)" ] || return 1
    [ -z "$(find "$here" \( -name '*.[ch]' -o -name build.sh \) -newer "$1" -print -quit)" ]
}

# shellcheck disable=SC2086  # the flags and sources are lists of words
for program in patterns latency lu transactions overhead notify idle mates scale threads \
    instructions continuations persistent fences flush_wins collectives tasks bsp halo; do
    sources="$here/$program/*.c $here/common/*.c"
    case $program in
    lu | transactions) # at -O2, compilers differ in what they vectorize
        sources="-O3 $sources $here/executor/*.c $here/schedule/$program.c" ;;
    tasks) # the library finds the tasking runtime in the program
        sources="-rdynamic $sources" ;;
    bsp | halo) # the same sums in every inlined copy
        sources="-ffp-contract=off $sources" ;;
    esac
    [ $program = tasks ] || [ $program = bsp ] || is_new "$out/$program-plain" ||
        "$mpicc" $flags -DPLAIN_HOST $sources -o "$out/$program-plain" -lm -pthread
    if [ "$prefix" = - ] || is_new "$out/$program"; then
        continue
    fi
    # The library must precede the host's, which the wrapper puts last.
    "$mpicc" $flags $cflags $sources -o "$out/$program" $libs "-Wl,-rpath,$prefix/lib" -lm -pthread
done
echo "$now" > "$made_by"
