#!/usr/bin/env bash
# Tests the decisions of gate.sh and test.sh: what they build, which gate they run, and their exit code.
# cmake, ctest, the compilers of a device and the command are stand-ins that write down how they were called.
# usage: scripts_test.sh ROOT
set -uo pipefail

root="$(realpath "$1")"
source "$(dirname "$0")/prelude.sh" /bin/true

mkdir -p clone/cmake bin
cp "$root/gate.sh" "$root/test.sh" clone
cp "$root/cmake/dependencies.cmake" clone/cmake
# Each stand-in is this script: it writes its name and arguments to ./calls.
cat >stand_in <<'END'
#!/usr/bin/env bash
name="$(basename "$0")"
[[ "$name" == dpkg-query ]] && { echo 'ii '; exit; }
[[ "$name" == nvidia-smi ]] && { echo 'GPU 0: a stand-in'; exit; }
echo "$name $*" >>"$CALLS"
if [[ "$name $*" == 'cmake --build --preset '* ]]; then
  mkdir -p "build/$3/cli" && cp "$0" "build/$3/cli/samestate"
fi
[[ "$name" != samestate ]] || exit "${GATE_EXIT:-0}"
[[ "$name" != ctest ]] || exit "${TESTS_EXIT:-0}"
END
chmod +x stand_in
for name in cmake ctest dpkg-query apt-get; do cp stand_in "bin/$name"; done
mkdir device && cp stand_in device/nvcc
mkdir gpu && cp stand_in gpu/nvidia-smi
cp stand_in gpu/nvcc

# calls CODE PATH SCRIPT ARGUMENT..: runs it with the folders of PATH before the system's; the programs that
# it called are in ./calls.
calls() {
  checks=$((checks + 1))
  invocation="${*:3}"
  code=0
  rm -rf calls clone/build && touch calls
  (cd clone && CALLS="$folder/calls" PATH="$folder/bin:$folder/$2:/usr/bin:/bin" CUDA_PATH=/nowhere "./$3" "${@:4}") >out 2>err || code=$?
  [[ $code -eq $1 ]] || complain "exit $code instead of $1"
}
called() { grep -qE -- "$1" calls || complain "did not call $1: $(tr '\n' ';' <calls)"; }
not_called() { ! grep -qE -- "$1" calls || complain "called $1"; }

# decides: runs all checks; if a fault is planted, up to the first that fails.
most=1000
decides() {
  local begin=$failures
  enough() { [[ $((failures - begin)) -ge $most ]]; }
  calls 0 none gate.sh
  called '^cmake --preset judge -DSAMESTATE_CUDA=OFF'
  called '^samestate gate .*--jsonl out/gate.jsonl .*--effort 0\.1'
  says 'minutes of processor time'
  says 'samestate gate --subject python:'
  calls 0 device gate.sh
  called 'SAMESTATE_CUDA=OFF'
  ! enough || return 0
  calls 0 gpu gate.sh
  called 'judge -DSAMESTATE_CUDA=ON'
  calls 0 device gate.sh --cuda
  called 'judge -DSAMESTATE_CUDA=ON'
  ! enough || return 0
  calls 2 none gate.sh --cuda
  holds err 'nvcc --cuda' || complain 'does not say what is missing'
  not_called cmake
  calls 0 none gate.sh --effort 3 --system retention
  called '^samestate gate .*--effort 3 --system retention'
  not_called 'effort 0\.1'
  ! enough || return 0
  calls 0 none gate.sh --max-cases=10
  not_called 'effort 0\.1'
  calls 0 none gate.sh --build-only
  not_called '^samestate'
  says 'samestate help'
  calls 0 none gate.sh --help
  says '--build-only'
  not_called cmake
  ! enough || return 0
  GATE_EXIT=1 calls 1 none gate.sh
  GATE_EXIT=139 calls 5 none gate.sh
  ! enough || return 0
  calls 0 device test.sh
  called '^cmake --preset release -DSAMESTATE_CUDA=ON'
  called '^samestate gate .*--effort 1'
  called '^ctest .*--label-exclude'
  calls 0 none test.sh --effort 2 --long
  called '^cmake --preset release -DSAMESTATE_CUDA=OFF'
  called '^samestate gate .*--effort 2'
  not_called 'label-exclude|--effort 1'
  GATE_EXIT=2 calls 2 none test.sh
  not_called ctest
  GATE_EXIT=1 TESTS_EXIT=8 calls 1 none test.sh
  called '^ctest'
  TESTS_EXIT=8 calls 8 none test.sh
}
decides

# Scripts with a fault are noticed, each of these.
most=1
for fault in 's/--effort 0.1/--effort 1/' 's/cuda=OFF/cuda=ON/' 's/^preset=judge/preset=release/' 's/-ge 128/-ge 256/' \
  's/build_only=yes/build_only=/' 's/^exit "\$status"/exit 0/'; do
  sed -i.right "$fault" clone/gate.sh
  cmp -s clone/gate.sh clone/gate.sh.right && complain "$fault changes nothing"
  before=$failures
  decides >/dev/null
  seen=$((failures - before))
  failures=$before
  [[ $seen -gt 0 ]] || complain "not seen: $fault"
  mv clone/gate.sh.right clone/gate.sh
done

finish
