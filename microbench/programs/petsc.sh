#!/bin/bash
# Builds PETSc and its program ex2 for a host, from Debian's source package: petsc.sh MPICC FOLDER.
# Minutes at the first time; nothing is installed outside FOLDER. Fails aloud without the network.
set -eu
mpicc=$1
mkdir -p "$2/apt/lists/partial"
cd "$2"
version=3.18.5
source=$PWD/petsc-$version
if [ ! -e "$source/configure" ]; then
    # A list of source packages of our own, since most systems' lists have none.
    echo "deb-src http://deb.debian.org/debian bookworm main" >apt/sources.list
    own=(-o "Dir::Etc::SourceList=$PWD/apt/sources.list" -o Dir::Etc::SourceParts=/dev/null
         -o "Dir::State::Lists=$PWD/apt/lists" -o Dir::Cache::srcpkgcache= -o Dir::Cache::pkgcache=)
    apt-get -q "${own[@]}" update
    apt-get -q "${own[@]}" source --download-only petsc=$version+dfsg1-1
    tar xf petsc_$version+dfsg1.orig.tar.xz
fi
label=$(basename "$mpicc" | sed 's/^mpicc\.//')
export PETSC_DIR=$source PETSC_ARCH=$label
cd "$source"
if [ ! -e "$label/lib/libpetsc.so" ]; then
    python3 ./configure --with-cc="$mpicc" --with-cxx=0 --with-fc=0 --with-mpiexec=false \
        --with-debugging=0 --with-x=0 --with-shared-libraries=1 COPTFLAGS=-O2 \
        --with-blaslapack-lib="-llapack -lblas"
    make -j "$(nproc)" libs
fi
"$mpicc" -O2 -Iinclude -I"$label/include" src/ksp/ksp/tutorials/ex2.c -o "$label/ex2" \
    -L"$label/lib" -Wl,-rpath,"$source/$label/lib" -lpetsc -lm
