#!/usr/bin/env bash
# Checks and measures a machine with binaries built elsewhere: no Rust is needed on it.
#
#   scripts/machine_check.sh BIN_DIR [PHASE ...]
#   phases: conformance identity residency digest build bench shape (default: all)
#
# BIN_DIR holds `krasis` (release build) and, for the first three phases, the test binaries `conformance`
# (crate ops), `identity` and `residency` (crate engine), built for a checkout at the path where this one lies.
# Prints a table last. Scratch files go to ${TMPDIR:-/tmp} and are removed.
set -uo pipefail
bin=$(cd "${1:?usage: machine_check.sh BIN_DIR [PHASE ...]}" && pwd)
shift
phases=${*:-conformance identity residency digest build bench shape}
scratch=$(mktemp -d "${TMPDIR:-/tmp}/krasis-check.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
export KRASIS_HOME=$scratch/home
rows=()
failed=0
row() { rows+=("$(printf '%-12s %-34s %s' "$1" "$2" "$3")"); }
fail() { row "$1" "$2" "FAILED: $3"; failed=1; }

# Runs a test binary: suite NAME WHAT [WHAT_MORE_IF_OK]
suite() {
  if "$bin/$1" --nocapture >"$scratch/$1.log" 2>&1; then
    row "$1" "$2${3:-}" "ok"
  else
    fail "$1" "$2" "see the log above"
    tail -n 40 "$scratch/$1.log"
  fi
}

conformance() {
  suite conformance "every op, every level" ", 1 and 2 threads"
  grep -E 'avx512|skipped' "$scratch/conformance.log" | sort | uniq -c | head -n 40
}

identity() {
  suite identity "matrix on the core fixtures"
  grep -E 'rows, levels|skipped' "$scratch/identity.log"
}

residency() {
  suite residency "devices of every size, late copies"
  grep -E 'test result|skipped' "$scratch/residency.log"
}

# One conversation at every level and several thread counts: the digest must be one, here and on every machine.
digest() {
  local seen="" level threads line value
  for level in scalar avx2 avx512; do
    for threads in 1 3 "$(nproc)"; do
      line=$("$bin/krasis" run "Tell me about the sea." --max-tokens 24 --digest --json \
        --simd "$level" --threads "$threads" 2>"$scratch/digest.err" | tail -n 1)
      value=$(printf '%s' "$line" | sed -n 's/.*"digest":"\([0-9a-f]*\)".*/\1/p')
      if [ -z "$value" ]; then
        row digest "$level, $threads threads" "skipped: $(tail -n 1 "$scratch/digest.err" | cut -c1-80)"
      else
        row digest "$level, $threads threads" "$value"
        [ -z "$seen" ] || [ "$seen" = "$value" ] || fail digest "$level, $threads threads" "not $seen"
        seen=$value
      fi
    done
  done
}

# Builds the cache of an 8 GB checkpoint with few and all threads: equal bytes, bounded memory.
build() {
  local model=$scratch/model-8gb threads began peak rss pid sum first=""
  began=$(date +%s.%N)
  "$bin/krasis" synth --checkpoint "$model" --size 8GB >/dev/null 2>"$scratch/synth.err" ||
    { fail build "synth 8 GB" "$(tail -n 1 "$scratch/synth.err")"; return; }
  row build "synth $(du -sh --apparent-size "$model" | cut -f1)" "$(since "$began")"
  for threads in "$(nproc)" 3; do
    began=$(date +%s.%N)
    peak=0
    "$bin/krasis" build "$model" --threads "$threads" >"$scratch/build.log" 2>&1 &
    pid=$!
    while kill -0 "$pid" 2>/dev/null; do
      rss=$(awk '/^RssAnon/ {print $2}' "/proc/$pid/status" 2>/dev/null || true)
      [ "${rss:-0}" -gt "$peak" ] && peak=$rss
      sleep 0.05
    done
    wait "$pid" || fail build "$threads threads" "$(tail -n 1 "$scratch/build.log")"
    sum=$(find "$KRASIS_HOME" -name '*.kw' -size +100M -exec sha256sum {} + | cut -c1-16)
    row build "$threads threads" "$(since "$began"), peak RssAnon $((peak / 1024)) MiB, sha256 $sum"
    [ -z "$first" ] || [ "$first" = "$sum" ] || fail build "$threads threads" "other bytes"
    first=$sum
    [ "$threads" = 3 ] || find "$KRASIS_HOME" -name '*.kw' -size +100M -delete
  done
}

bench() {
  local level out
  [ -d "$scratch/model-8gb" ] || { row bench "8 GB model" "skipped: phase build did not run"; return; }
  for level in avx2 avx512; do
    out=$("$bin/krasis" bench "$scratch/model-8gb" --prompt 512 --decode 48 --simd "$level" --json \
      2>"$scratch/bench.err" | tail -n 1)
    if [ -z "$out" ]; then
      row bench "$level" "skipped: $(tail -n 1 "$scratch/bench.err" | cut -c1-80)"
      continue
    fi
    printf '%s\n' "$out"
    [ -z "${OUT:-}" ] || printf '%s\n' "$out" >>"$OUT/bench.jsonl"
    row bench "$level" "$(figures "$out" prefill_tok_s decode_tok_s read_gb_s machine_read_gb_s)"
  done
}

# A model of a published shape with realistic routing, on devices of several sizes.
shape() {
  local model=$scratch/30b began vram out
  began=$(date +%s.%N)
  "$bin/krasis" synth qwen3-30b-a3b --out "$model" >"$scratch/synth.log" 2>&1 ||
    { fail shape "synth" "$(tail -n 1 "$scratch/synth.log")"; return; }
  cat "$scratch/synth.log"
  row shape "synth qwen3-30b-a3b" "$(since "$began")"
  for vram in none 24GiB 16GiB 12GiB 8GiB 5GiB; do
    local limit=()
    [ "$vram" = none ] || limit=(--vram "$vram")
    out=$("$bin/krasis" bench "$model" --prompt 1024 --decode 64 --context 4096 "${limit[@]}" --json \
      2>"$scratch/bench.err" | tail -n 1)
    [ -n "$out" ] || { fail shape "$vram" "$(tail -n 1 "$scratch/bench.err" | cut -c1-100)"; continue; }
    [ -z "${OUT:-}" ] || printf '%s\n' "$out" >>"$OUT/shape.jsonl"
    row shape "--vram $vram" "$(figures "$out" prefill_tok_s decode_tok_s hit_rate resident_fraction)"
  done
  rm -rf "$model"
}

# Picks named figures out of one line of JSON.
figures() {
  local name value text="" line=$1
  shift
  for name in "$@"; do
    value=$(printf '%s' "$line" | sed -n "s/.*\"$name\":\([-0-9.e+]*\).*/\1/p")
    text="$text $name $(printf '%.2f' "${value:-0}")"
  done
  printf '%s' "$text"
}

since() { awk -v a="$1" -v b="$(date +%s.%N)" 'BEGIN { printf "%.1f s", b - a }'; }

for phase in $phases; do
  case $phase in
  conformance | identity | residency | digest | build | bench | shape) "$phase" ;;
  *) fail "$phase" "" "no such phase" ;;
  esac
done
echo
grep -m1 'model name' /proc/cpuinfo
printf '%s\n' "${rows[@]}"
exit $failed
