# shellcheck shell=bash
# Builds, inside the environment. Sourced.

# build NAME [MESON_OPTION...]: $GRD_BUILDS/NAME is up to date after it. The log is shown only on failure.
build() {
  local name=$1 dir=$GRD_BUILDS/$1 log=$GRD_BUILDS/log/$1 start=$SECONDS
  shift
  mkdir -p "$GRD_BUILDS/log"
  # Without build.ninja the last setup has failed; with other options the folder is of no use.
  if [ ! -e "$dir/build.ninja" ] || [ "$(cat "$dir.options" 2>/dev/null)" != "$*" ]; then
    rm -rf "$dir"
    printf '%s\n' "$*" >"$dir.options"
    if ! meson setup "$@" "$dir" "$GRD_SOURCE" >"$log" 2>&1; then
      printf '  build %s: meson setup failed\n' "$name" >&2
      tail -n 25 "$log" | sed 's/^/  | /' >&2
      return 1
    fi
  fi
  if ! ninja -C "$dir" >"$log" 2>&1; then
    printf '  build %s: failed\n' "$name" >&2
    # The first error is the one that matters; ninja goes on for a while after it.
    { grep -n -m1 -A20 -E '^FAILED:|ERROR:' "$log" || tail -n 25 "$log"; } | sed 's/^/  | /' >&2
    return 1
  fi
  printf '  build %s: done in %d s\n' "$name" $((SECONDS - start))
}

# The four builds of scripts/test and the one of scripts/bench. Sanitizers make the compiler warn of things that
# are none, so only the first treats warnings as errors.
build_main() { build main --buildtype=debugoptimized -Dwerror=true; }
build_asan() { build asan --buildtype=debugoptimized -Db_sanitize=address,undefined -Db_lundef=false; }
build_tsan() { build tsan --buildtype=debugoptimized -Db_sanitize=thread -Db_lundef=false; }
build_fuzz() { CC=clang build fuzz --buildtype=debugoptimized -Dfuzz=true -Db_lundef=false; }
build_release() { build release --buildtype=release; }
