#!/usr/bin/env bash
# Installs the Debian packages that are missing: jobs/install.sh run [tests]. The only list of
# packages.
#
#   run     what building and running the program and the quickstart takes
#   tests   what the tests need on top of that
#
# Prints what it installs and installs nothing that is there. Uses sudo when it is not started by
# root.
set -euo pipefail

# ocl-icd-opencl-dev: Debian's dnnl-config.cmake looks for OpenCL and stops where it is not found.
run_packages=(
  g++ cmake ninja-build
  openmpi-bin libopenmpi-dev
  liburing-dev libhdf5-dev hdf5-tools
  libboost-program-options-dev libdnnl-dev ocl-icd-opencl-dev
  nlohmann-json3-dev libfmt-dev libxxhash-dev
  bible-kjv procps
)
test_packages=(libgtest-dev xxhash python3 python3-h5py python3-numpy util-linux)

wanted=()
for group in "$@"; do
  case $group in
    run) wanted+=("${run_packages[@]}") ;;
    tests) wanted+=("${test_packages[@]}") ;;
    *) echo "jobs/install.sh: unknown group \"$group\" (run and tests are known)." >&2; exit 2 ;;
  esac
done
[ ${#wanted[@]} -gt 0 ] || { echo "usage: jobs/install.sh run [tests]" >&2; exit 2; }

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "This is no Debian system, so nothing is installed. Needed are the counterparts of:"
  echo "  ${wanted[*]}"
  exit 0
fi

missing=()
for package in "${wanted[@]}"; do
  state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$state" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
  echo "Packages: all ${#wanted[@]} are there, nothing to install."
  exit 0
fi
echo "Packages to install: ${missing[*]}"

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "Cannot install them (not root, and there is no sudo). Ask an administrator for:" >&2
    echo "  apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi

apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 \
    -o DPkg::Lock::Timeout=300 "$@"
}

log=$(mktemp)
trap 'rm -f "$log"' EXIT
install() { apt install -y --no-install-recommends "${missing[@]}" >"$log" 2>&1; }
# A fresh system has no package lists, an old one has stale ones: either way a second attempt
# follows an update.
if ! install; then
  echo "Package lists are missing or old: apt-get update"
  apt update
  install || { cat "$log" >&2; echo "apt-get could not install: ${missing[*]}" >&2; exit 1; }
fi
echo "Installed: ${missing[*]}"
