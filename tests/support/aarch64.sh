#!/usr/bin/env bash
# Makes a folder with Debian's Python for AArch64, the packages the runtime needs, and qemu to run them; no root needed.
#   tests/support/aarch64.sh [folder]
set -euo pipefail
folder=${1:-$HOME/.cache/edgewright-tests/aarch64}
[ -e "$folder/ready" ] && exit 0
rm -rf "$folder"
unavailable() { echo "apt has no $1 for $2: qemu and an Arm Python come from Debian's archive" >&2; exit 3; }

packages() { # architecture, destination, names
  local state=$folder/apt-$1 to=$folder/$2 options
  mkdir -p "$state"/lists/partial "$state"/archives/partial "$state"/debs "$to"
  options="-qq -o APT::Architecture=$1 -o APT::Architectures=$1 -o Dir::State::lists=$state/lists -o Dir::Cache=$state"
  apt-get $options update || unavailable packages "$1"
  names=$(${*:3} "$options")
  for name in $names; do [ -n "$(apt-cache $options show "$name")" ] || unavailable "$name" "$1"; done
  (cd "$state/debs" && apt-get $options download $names)
  for package in "$state"/debs/*.deb; do dpkg -x "$package" "$to"; done
}
emulator() { echo qemu-user-static; }
interpreter() {
  local python
  python=$(apt-cache $1 depends python3-minimal | sed -n 's/.*Depends: \(python3\.[0-9]*\)-minimal$/\1/p' | head -1)
  echo libc6 libgcc-s1 libstdc++6 zlib1g libexpat1 libffi8 "$python-minimal" "lib$python-minimal" "lib$python-stdlib"
}
packages "$(dpkg --print-architecture)" host emulator
mv "$folder/host/usr/bin/qemu-aarch64-static" "$folder/qemu" && rm -r "$folder/host"
packages arm64 root interpreter
python=$(basename "$(ls -d "$folder"/root/usr/bin/python3.*)")
ln -sf "$python" "$folder/root/usr/bin/python3"
platforms=$(printf -- '--platform manylinux_2_%s_aarch64 ' 17 27 28; echo --platform manylinux2014_aarch64)
python3 -m pip download --quiet --no-deps $platforms --python-version "${python#python}" --only-binary=:all: \
  -d "$folder/wheels" numpy llvmlite flatbuffers ml_dtypes
for wheel in "$folder"/wheels/*.whl; do python3 -m zipfile -e "$wheel" "$folder/site"; done
rm -rf "$folder"/apt-* "$folder/wheels"
touch "$folder/ready"
