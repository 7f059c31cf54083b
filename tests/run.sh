#!/usr/bin/env bash
# Installs what is missing, builds and runs all tests; the last line is ctest's summary.
# tests/run.sh [--quick]
#
#   --quick   the release build's unit tests only: no sanitizers, no end-to-end tests
#
# Order: address and undefined-behaviour sanitizer over the unit tests, thread sanitizer over what
# has threads, then everything in a release build with warnings as errors. Everything is built under
# build/, outside of the quickstart's.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

quick=no
for option in "$@"; do
  case $option in
    --quick) quick=yes ;;
    *) echo "tests/run.sh: unknown option \"$option\" (--quick is known)." >&2; exit 2 ;;
  esac
done

jobs/install.sh run tests || exit 1

jobs=$(nproc)
failed=()
fixed_layout=()

# build_tree NAME PRESET TARGET...: configures and builds build/NAME; prints the compiler's words
# only when it fails.
build_tree() {
  local name=$1 preset=$2 log
  shift 2
  log=build/$name.log
  mkdir -p build
  echo "Building build/$name: $*"
  if ! { cmake --preset "$preset" -B "build/$name" -DSPILLWAY_TESTS=ON -DSPILLWAY_WERROR=ON &&
         "${fixed_layout[@]}" cmake --build "build/$name" -j "$jobs" --target "$@"; } \
         >"$log" 2>&1; then
    tail -n 60 "$log" >&2
    echo "The build of build/$name failed; the whole log is $log." >&2
    return 1
  fi
}

# run_ctest NAME OPTION...: at most as many tests at once as there are cores; those that start ranks
# count for more.
run_ctest() {
  local name=$1
  shift
  "${fixed_layout[@]}" \
    ctest --test-dir "build/$name" --output-on-failure --no-tests=error -j "$jobs" "$@"
}

if [ $quick = no ]; then
  # Not under sanitizers: whole runs (e2e), real MPI (its library is full of reports of its own),
  # slow tests.
  # The link order is not checked, because one test preloads a library that refuses system calls.
  export ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1:verify_asan_link_order=0
  export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
  if ! { build_tree asan asan unit_tests && run_ctest asan -LE '^(e2e|mpi|slow)$'; }; then
    failed+=("address and undefined-behaviour sanitizer")
  fi
  export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1
  # The thread sanitizer of g++ 12 does not know the address layout of kernels that randomize more.
  fixed_layout=()
  ! setarch -R true 2>/dev/null || fixed_layout=(setarch -R)
  if ! { build_tree tsan tsan thread_tests &&
         run_ctest tsan -L '^(threads|comm)$' -LE '^mpi$'; }; then
    failed+=("thread sanitizer")
  fi
  fixed_layout=()
fi

if ! build_tree tests release all; then exit 1; fi
selection=()
[ $quick = yes ] && selection=(-LE '^e2e$')
[ ${#failed[@]} -eq 0 ] || printf 'Failed before the release tests: %s\n' "${failed[@]}"
run_ctest tests "${selection[@]}"
status=$?
[ ${#failed[@]} -eq 0 ] || status=1
exit $status
