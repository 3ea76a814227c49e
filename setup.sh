#!/bin/sh
# Sets up paraagent on a machine that has Node and npm: dependencies (Bun among them) and, where no GPU is at hand, what makes a
# CPU fast (a system BLAS) and lets Dawn run (a software Vulkan driver in .cache/). Safe to run again. Changes nothing of the system but
# apt packages, and those only where it runs as root on Debian or Ubuntu.
set -eu
cd "$(dirname "$0")"

say() { printf '%s\n' "setup: $*" >&2; }

if ! command -v node >/dev/null 2>&1 || ! command -v npm >/dev/null 2>&1; then
  say "Node and npm are needed and were not found. Install them (https://nodejs.org, or your package manager) and run: sh setup.sh"
  exit 1
fi

# 1. Dependencies. Bun comes as an npm package; a folder that matches the lock file is left alone.
if [ ! -x node_modules/.bin/bun ] || [ ! -f node_modules/.package-lock.json ] || [ package-lock.json -nt node_modules/.package-lock.json ]; then
  say "installing dependencies with npm (about 700 MB on disk, most of it the API specifications and Dawn) …"
  npm ci --no-audit --no-fund
else
  say "dependencies are there"
fi
bun=./node_modules/.bin/bun
"$bun" --version >/dev/null 2>&1 || {
  say "Bun was installed but does not start. Its npm package supports Linux (x64, arm64), macOS and Windows; try: npx bun --version"
  exit 1
}

# 2. What a machine without a GPU needs. macOS has Metal and Accelerate; Linux may want a BLAS and a software Vulkan driver.
if [ "$(uname -s)" = Linux ]; then
  if ldconfig -p 2>/dev/null | grep -q -e 'libopenblas\.so' -e 'libblis\.so' -e 'libmkl_rt\.so'; then
    say "a BLAS library is there"
  elif [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    say "installing libopenblas0-pthread (matrix products on the CPU) …"
    { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends libopenblas0-pthread; } >&2 ||
      say "could not install it; the CPU engine works without it, about half as fast"
  else
    say "no BLAS found. Training on the CPU is about twice as fast with one: sudo apt-get install libopenblas0-pthread"
  fi
  sh scripts/vulkan.sh || say "no software Vulkan driver; the CPU engine works without one (bun run doctor says more)"
fi

say "done. Next: ./node_modules/.bin/bun run quickstart"
