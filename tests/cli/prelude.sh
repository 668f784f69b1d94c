# Sourced by the tests of the command, whose first argument is the command under test. It gives a test a
# folder of its own, runs with an exit code, and checks of what they print. A test makes its other arguments
# absolute before it sources this. tests/cli/prelude_test.sh shows that each of these functions complains.
samestate="$(realpath "$1")"
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failures=0
checks=0
invocation=''
patience=180  # seconds a run: to plan all kernels takes 20, more beside other tests
around=()    # what the command is run by
# The command is run by this so that it ends with its test, however that ends: ctest and timeout kill a shell
# without notice.
tied=()
if setpriv --pdeathsig TERM true 2>/dev/null; then tied=(setpriv --pdeathsig TERM); fi
moments=1200 # of a twentieth of a second, that await waits

# complain WHAT: reports a failure, with the last run and what it wrote to stderr.
complain() {
  printf 'FAILED: %s\n' "$1"
  [[ -z "$invocation" ]] || printf '  of: samestate %s\n' "$invocation"
  [[ ! -s err ]] || sed 's/^/  stderr: /' err | head -20
  failures=$((failures + 1))
}

# attempt ARGUMENT...: runs the command; its output is in ./out and ./err, its exit code in $code.
attempt() {
  invocation="$*"
  checks=$((checks + 1))
  code=0
  "${tied[@]}" timeout --kill-after=60 "$patience" "${around[@]}" "$samestate" "$@" >out 2>err </dev/null || code=$?
}

# run CODE ARGUMENT...: does the same, and checks that the command ends with CODE.
run() {
  local expected="$1"
  shift
  attempt "$@"
  [[ $code -eq $expected ]] || complain "exit $code instead of $expected"
}

# holds FILE FACTS: succeeds if one line of the file has each of the facts, which are separated by spaces:
# keys, values, limits, names of options. A number stands by itself: 1 is neither in 12 nor in v1.
holds() {
  local -a facts
  local fact found
  read -ra facts <<<"$2"
  found="$(cat "$1")"
  for fact in "${facts[@]}"; do
    if [[ "$fact" =~ ^[0-9.]+$ ]]; then
      found="$(grep -E -- "(^|[^0-9A-Za-z_.])${fact//./\\.}([^0-9A-Za-z_.]|\\.([^0-9]|$)|$)" <<<"$found")" || return 1
    else
      found="$(grep -F -- "$fact" <<<"$found")" || return 1
    fi
  done
}

# bad FACTS ARGUMENT...: checks for bad input: exit 2, nothing on stdout, and one line on stderr that has
# FACTS.
bad() {
  local facts="$1"
  shift
  run 2 "$@"
  [[ ! -s out ]] || complain 'wrote to stdout'
  [[ "$(wc -l <err)" -eq 1 ]] || complain 'not one line on stderr'
  holds err "$facts" || complain "does not name $facts"
  [[ "$(wc -c <err)" -lt 1000 ]] || complain 'too long for a line'
  ! grep -q 'internal error' err || complain 'an internal error'
}

# says FACTS: checks that a line of the last run's stdout has them.
says() { holds out "$1" || complain "does not say $1"; }
absent() { [[ ! -e "$1" ]] || complain "left $1"; }
present() { [[ -s "$1" ]] || complain "did not write $1"; }

# count VERDICT: prints how many cases the last search's summary gives it.
count() { grep -oE "[:,] $1 [0-9]+" out | head -1 | grep -oE '[0-9]+$' || echo 0; }

# await COUNT PATTERN FILE: waits until COUNT lines of it match the pattern; fails after $moments.
await() {
  local found waited
  for ((waited = 0; waited < moments; ++waited)); do
    found="$(grep -c -- "$2" "$3" 2>/dev/null)"
    [[ ${found:-0} -lt $1 ]] || return 0
    sleep 0.05
  done
  return 1
}

# Kernels of a test that die leave no core files, and give the signal where a sanitizer would turn it into an
# exit.
let_kernels_die() {
  ulimit -c 0
  export ASAN_OPTIONS=handle_segv=0:detect_leaks=0
}

# The last line of a test, whose exit code becomes that of the test.
finish() {
  printf '%s runs of the command, %s failures\n' "$checks" "$failures"
  [[ $failures -eq 0 ]]
}
