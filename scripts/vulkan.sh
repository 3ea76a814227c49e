#!/bin/sh
# A software Vulkan driver that Dawn accepts, for tests and for machines without a GPU. Called by setup.sh; may be run again at any time.
#
#   .cache/vulkan/       Mesa's lavapipe, 25 or newer, unpacked beside the system's own Mesa, which is left as it is (Debian, Ubuntu)
#   .cache/swiftshader/  SwiftShader and a Vulkan loader from the npm package @sparticuz/chromium (x86-64 Linux; needs no root)
#
# lib/engine/webgpu/device.ts finds both. They only add to the drivers of the system: a GPU's driver is never hidden.
# --lavapipe or --swiftshader does only that one. Exit status 1 when neither could be had; the cpu engine works all the same.
set -u
cd "$(dirname "$0")/.." || exit 1
cache="$PWD/.cache"
want="${1:-both}"
say() { printf 'vulkan: %s\n' "$*"; }

[ "$(uname -s)" = Linux ] || { say "not Linux: Dawn uses this system's own graphics interface, nothing to do"; exit 0; }
mkdir -p "$cache"

# ---- lavapipe ----------------------------------------------------------------------------------------------------------
lavapipe_present() { [ -f "$cache/vulkan/lvp_icd.json" ] && [ -f "$(sed -n 's/.*"library_path": *"\([^"]*\)".*/\1/p' "$cache/vulkan/lvp_icd.json")" ]; }

write_icd() { # the driver's path, the file to write
  mkdir -p "$(dirname "$2")"
  printf '{"file_format_version": "1.0.0", "ICD": {"library_path": "%s", "api_version": "%s"}}\n' "$1" "$3" > "$2"
}

# True if the system's own lavapipe is new enough: Dawn refuses Mesa 22, and takes 25.
system_mesa_is_new() {
  version=$(dpkg-query -W -f '${Version}' mesa-vulkan-drivers 2>/dev/null) || return 1
  dpkg --compare-versions "$version" ge 24
}

lavapipe() {
  if lavapipe_present; then say "lavapipe is there already ($cache/vulkan)"; return 0; fi
  if ! command -v apt-get >/dev/null 2>&1; then
    say "no apt-get here: for lavapipe install your system's Mesa Vulkan drivers, version 24 or newer"; return 1
  fi
  if ! dpkg-query -W mesa-vulkan-drivers libvulkan1 >/dev/null 2>&1; then
    if [ "$(id -u)" = 0 ]; then
      say "installing mesa-vulkan-drivers (for the libraries it needs)"
      apt-get update -qq || true
      DEBIAN_FRONTEND=noninteractive apt-get install -y -qq mesa-vulkan-drivers libvulkan1 >/dev/null || return 1
    else
      say "not root: ask for 'apt-get install mesa-vulkan-drivers' and run scripts/vulkan.sh again; going on without it"; return 1
    fi
  fi
  if system_mesa_is_new; then say "the system's own Mesa is new enough"; return 0; fi

  # Backports come from the mirror that this machine uses already: its own apt entry for the release, with the suite's name changed.
  line=$(apt-get indextargets --format '$(REPO_URI)|$(CODENAME)|$(LABEL)' 'Created-By: Packages' 'Component: main' |
    grep '|Debian$' | grep -v -e '-updates|' -e '-security|' -e '-backports|' | head -n 1)
  uri=${line%%|*}; rest=${line#*|}; codename=${rest%%|*}
  if [ -z "$uri" ]; then say "this system's Mesa is too old for Dawn and it has no Debian mirror to take a newer one from"; return 1; fi
  tmp=$(mktemp -d) || return 1
  mkdir -p "$tmp/lists/partial" "$tmp/cache/archives/partial" "$tmp/debs"
  printf 'deb %s %s-backports main\n' "$uri" "$codename" > "$tmp/sources.list"
  apt_own() {
    apt-get -qq -o Dir::Etc::sourcelist="$tmp/sources.list" -o Dir::Etc::sourceparts=- -o Dir::State::Lists="$tmp/lists" \
      -o Dir::Cache="$tmp/cache" -o APT::Sandbox::User="$(id -un)" "$@"
  }
  say "fetching a newer lavapipe ($codename-backports)"
  if ! { apt_own update && (cd "$tmp/debs" && apt_own download mesa-vulkan-drivers); }; then
    rm -rf "$tmp"; say "could not fetch it"; return 1
  fi
  rm -rf "$cache/vulkan"; mkdir -p "$cache/vulkan/lib"
  dpkg -x "$tmp"/debs/mesa-vulkan-drivers_*.deb "$tmp/root"
  lib=$(find "$tmp/root" -name libvulkan_lvp.so | head -n 1)
  # What the new driver needs and the system lacks (a newer LLVM, say) is unpacked beside it, package by package.
  cp "$lib" "$cache/vulkan/lib/"
  for package in $(dpkg -I "$tmp"/debs/mesa-vulkan-drivers_*.deb | sed -n 's/^ Depends: //p' | tr ',' '\n' | sed 's/ *(.*//; s/ //g'); do
    case "$package" in libLLVM*|libllvm*|libdrm*|libgallium*) ;; *) continue ;; esac
    dpkg-query -W "$package" >/dev/null 2>&1 && continue
    (cd "$tmp/debs" && { apt_own download "$package" || apt-get -qq download "$package"; }) || continue
    dpkg -x "$tmp/debs/$package"_*.deb "$tmp/more"
  done
  [ -d "$tmp/more" ] && find "$tmp/more" -name '*.so*' -exec cp -P {} "$cache/vulkan/lib/" \;
  rm -rf "$tmp"
  missing=$(LD_LIBRARY_PATH="$cache/vulkan/lib" ldd "$cache/vulkan/lib/libvulkan_lvp.so" | grep 'not found')
  if [ -n "$missing" ]; then say "the driver lacks libraries:"; printf '%s\n' "$missing"; rm -rf "$cache/vulkan"; return 1; fi
  write_icd "$cache/vulkan/lib/libvulkan_lvp.so" "$cache/vulkan/lvp_icd.json" 1.3.0
  say "lavapipe is ready ($cache/vulkan)"
}

# ---- SwiftShader -------------------------------------------------------------------------------------------------------
swiftshader() {
  if [ -f "$cache/swiftshader/libvk_swiftshader.so" ]; then say "SwiftShader is there already ($cache/swiftshader)"; return 0; fi
  if [ "$(uname -m)" != x86_64 ]; then say "SwiftShader is had from npm for x86-64 only"; return 1; fi
  command -v npm >/dev/null 2>&1 || { say "no npm here: no SwiftShader"; return 1; }
  tmp=$(mktemp -d) || return 1
  say "fetching SwiftShader (npm @sparticuz/chromium)"
  mkdir -p "$tmp/out"
  if (cd "$tmp" && npm pack --silent @sparticuz/chromium@147.0.0 >/dev/null && tar xzf ./*.tgz package/bin/swiftshader.tar.br) &&
    node -e 'const f=require("fs"),z=require("zlib");f.writeFileSync(process.argv[2],z.brotliDecompressSync(f.readFileSync(process.argv[1])))' \
      "$tmp/package/bin/swiftshader.tar.br" "$tmp/swiftshader.tar" &&
    tar xf "$tmp/swiftshader.tar" -C "$tmp/out" libvk_swiftshader.so libvulkan.so.1; then
    rm -rf "$cache/swiftshader"; mkdir -p "$cache/swiftshader"
    cp "$tmp/out/libvk_swiftshader.so" "$tmp/out/libvulkan.so.1" "$cache/swiftshader/"
    write_icd "$cache/swiftshader/libvk_swiftshader.so" "$cache/swiftshader/swiftshader_icd.json" 1.1.0
    rm -rf "$tmp"; say "SwiftShader is ready ($cache/swiftshader)"; return 0
  fi
  rm -rf "$tmp"; say "could not fetch SwiftShader"; return 1
}

had=1
case "$want" in
  --lavapipe) lavapipe && had=0 ;;
  --swiftshader) swiftshader && had=0 ;;
  both) lavapipe && had=0; swiftshader && had=0 ;;
  *) say "unknown argument $want (--lavapipe, --swiftshader, or none)"; exit 2 ;;
esac
exit $had
