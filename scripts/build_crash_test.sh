#!/usr/bin/env bash
# Kills a cache build with SIGKILL at 20 moments spread over it, lets the next one finish each time, and compares
# the file with that of a build nobody disturbed. As root it also lets the disk run full.
#
#   scripts/build_crash_test.sh MODEL SCRATCH [PROGRAM]
#
# MODEL is a model folder of 2 GB or more, SCRATCH an empty or new folder with room for two caches. PROGRAM is
# `krasis` (default: target/release/krasis) or the example `cache_build` of crate weights.
set -euo pipefail

model=${1:?a model folder}
scratch=${2:?a folder for the caches}
program=${3:-target/release/krasis}
kills=${KILLS:-20}
mkdir -p "$scratch"

# Builds the cache of the model under the home given first.
build() {
    case $(basename "$program") in
        cache_build*) exec "$program" "$model" "$1/cache/model.kw" ;;
        *) KRASIS_HOME=$1 exec "$program" build "$model" ;;
    esac
}

fail() { echo "FAILED: $*" >&2; exit 1; }

# Digest of the only finished cache under a home; empty if there is none.
digest() { find "$1/cache" -name '*.kw' -exec sha256sum {} + 2>/dev/null | cut -d' ' -f1; }

leftovers() { find "$1/cache" \( -name '*.partial' -o -name '*.journal' \) | wc -l; }

start=$(date +%s%N)
(build "$scratch/whole") > "$scratch/whole.log" 2>&1 || fail "the undisturbed build, see $scratch/whole.log"
took_ms=$((($(date +%s%N) - start) / 1000000))
expected=$(digest "$scratch/whole")
[ -n "$expected" ] || fail "no cache after the undisturbed build"
[ "$(leftovers "$scratch/whole")" = 0 ] || fail "the undisturbed build left its journal"
echo "undisturbed: $took_ms ms, sha256 $expected"

# Each round starts afresh, is killed at its own moment, and is finished by the next build.
now_ms() { echo $(($(date +%s%N) / 1000000)); }
resumed=0
for i in $(seq "$kills"); do
    home=$scratch/killed
    rm -rf "$home"
    (build "$home") > "$scratch/killed.log" 2>&1 &
    pid=$!
    sleep "$(awk "BEGIN { print $took_ms / 1000 * $i / ($kills + 1) }")"
    kill -9 "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
    journal=$(find "$home/cache" -name '*.journal' -exec cat {} + 2>/dev/null | wc -l)
    found=$(digest "$home")
    [ -z "$found" ] || [ "$found" = "$expected" ] || fail "kill $i left another file under the final name"
    start=$(now_ms)
    (build "$home") > "$scratch/killed.log" 2>&1 || fail "the build after kill $i, see $scratch/killed.log"
    rest_ms=$(($(now_ms) - start))
    [ "$(digest "$home")" = "$expected" ] || fail "the bytes differ after kill $i"
    [ "$(leftovers "$home")" = 0 ] || fail "the build after kill $i left its journal"
    [ "$journal" -le 1 ] || resumed=$((resumed + 1))
    echo "kill $i: journal of $journal lines${found:+, finished}; the next build took $rest_ms ms: the same bytes"
done
echo "after each of $kills kills: the same bytes; $resumed builds resumed finished sections"

if [ "$(id -u)" != 0 ]; then
    echo "skipped: the full disk (needs root to mount one)"
    exit 0
fi
size=$(find "$scratch/whole/cache" -name '*.kw' -printf %s)
disk=$scratch/disk
mkdir -p "$disk"
trap 'umount "$disk" 2>/dev/null || true' EXIT

mount -t tmpfs -o size=$((size / 2)) tmpfs "$disk"
(build "$disk") > "$scratch/small.log" 2>&1 && fail "a build on a disk of half the size"
grep -qi 'needed' "$scratch/small.log" || fail "no word about the space needed, see $scratch/small.log"
[ -z "$(digest "$disk")" ] || fail "a cache on a disk of half the size"
umount "$disk"
echo "too small a disk: $(tail -1 "$scratch/small.log")"

mount -t tmpfs -o size=$((size + (64 << 20))) tmpfs "$disk"
(build "$disk") > "$scratch/full.log" 2>&1 &
pid=$!
sleep "$(awk "BEGIN { print $took_ms / 3000 }")"
dd if=/dev/zero of="$disk/filler" bs=1M status=none 2>/dev/null || true
wait "$pid" && fail "a build on a disk that ran full"
[ -z "$(digest "$disk")" ] || fail "a cache on a disk that ran full"
echo "full disk: $(tail -1 "$scratch/full.log")"
rm "$disk/filler"
(build "$disk") > "$scratch/full.log" 2>&1 || fail "the build with room again, see $scratch/full.log"
[ "$(digest "$disk")" = "$expected" ] || fail "the bytes differ after the full disk"
echo "with room again: the same bytes"
