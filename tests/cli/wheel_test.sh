#!/usr/bin/env bash
# The wheel of python/ as its user meets it: built from a copy of the folder, installed into an environment that knows
# nothing of the build, it holds the command, what that reads, and its libraries. Skipped, with the reason, where no wheel can
# be built. Without a built command the wheel is pure, and says what is missing.
# usage: wheel_test.sh SAMESTATE PYTHON BUILD FOLDER: FOLDER keeps the environment from one run to the next
set -uo pipefail

python="$2"
build="$(realpath "$3")"
source_folder="$(realpath "$(dirname "$0")/../../python")"
mkdir -p "$4" && environment="$(realpath "$4")"
source "$(dirname "$0")/prelude.sh"
patience=240

skip() {
  printf 'skipped: %s\n' "$1"
  exit 77
}
pip() { timeout 240 "$environment/bin/python" -m pip --disable-pip-version-check "$@" 2>&1; }
if [[ ! -e "$environment/complete" ]]; then
  "$python" -m venv "$environment" >venv 2>&1 || skip "$python makes no virtual environment: $(tail -1 venv)"
  pip install --quiet --timeout 20 --retries 1 'setuptools>=61' wheel numpy >said || skip "no packages: $(tail -1 said)"
  touch "$environment/complete"
fi

# wheel NAME [VARIABLE=VALUE]: builds ./NAME/*.whl from a copy of the folder, at a place without a build beside it.
wheel() {
  checks=$((checks + 1))
  invocation="pip wheel ($1)"
  rm -rf source && mkdir source && cp -r "$source_folder" source/python
  rm -rf source/python/build source/python/*.egg-info
  mkdir -p "$1"
  env "${@:2}" timeout 240 "$environment/bin/python" -m pip --disable-pip-version-check wheel --quiet --no-deps \
    --no-build-isolation -w "$1" ./source/python >err 2>&1 || complain 'no wheel'
}
# inside COMMAND...: in the environment, which neither PATH nor variables lead to the build.
inside() {
  checks=$((checks + 1))
  invocation="$*"
  code=0
  env -i HOME="$folder" PATH="$environment/bin:/usr/bin:/bin" PYTHONDONTWRITEBYTECODE=1 timeout 240 "$@" >out 2>err || code=$?
}

wheel with SAMESTATE_BUILD="$build"
name="$(basename with/*.whl)"
[[ "$name" =~ ^samestate-[0-9.]+-py3-none-manylinux_2_[0-9]+_[a-z0-9_]+\.whl$ ]] || complain "the tag of $name"
pip install --quiet --no-deps --force-reinstall with/*.whl >said || complain "it does not install: $(tail -1 said)"
inside samestate --version
[[ $code -eq 0 && "$(cat out)" == "$("$samestate" --version)" ]] || complain 'the script is not the command'
inside python -c 'import samestate; print(samestate.executable())'
grep -q '/site-packages/samestate/bin/samestate$' out || complain 'the command is not the one inside'
command="$(cat out)"
# What it is linked to and no runtime of C or C++ is found in the wheel.
ldd "$command" | grep -E 'lib(fmt|mpfi|mpfr|gmp|pugixml)' >linked
[[ "$(wc -l <linked)" -ge 4 ]] || complain 'it is linked to less than was thought'
grep -v '/site-packages/samestate/' linked && complain 'libraries of this machine'
ls "$(dirname "$command")/../lib" | grep -E '^(libc|libm|libstdc[+][+]|libgcc_s|ld-[^.]*)[.]' && complain 'runtimes of this machine'
# Each library lies beside the text of its licence, and beside the longer text that this one names.
for library in "$(dirname "$command")"/../lib/*.so*; do
  licence="$(cat "$(dirname "$library")/licenses/$(basename "$library")".* 2>/dev/null)"
  grep -qiE 'licen[cs]e|permission is hereby granted' <<<"$licence" || complain "no licence of $(basename "$library")"
  [[ "$licence" != *common-licenses/LGPL* || "$licence" == *'GNU LESSER GENERAL PUBLIC LICENSE'* ]] ||
    complain "the licence of $(basename "$library") is only named"
done
# The corpus is there, and replayed first.
inside samestate gate --device cpu --system retention --list --max-cases 400
first="$(grep -m1 '^v1 ' "$source_folder/../fuzz/corpus/retention.txt")"
[[ "$(head -1 out)" == "$first" ]] || complain 'the corpus is not in it'
cat >mine.py <<'END'
import numpy as np
import samestate

@samestate.kernel("l2norm", "fused", contracts=["fp32"])
def l2(x):
    return (x / np.sqrt((x.astype(np.float64) ** 2).sum(-1, keepdims=True) + 1e-6)).astype(np.float32)
END
inside samestate gate --subject python:mine.py --max-cases 40
[[ $code -eq 0 ]] || complain "a kernel in Python: exit $code"
grep -q 'pass' out || complain 'nothing passed'
# Of another glibc than its own is not asked: the tag is no older than what the command needs.
newest="$(grep -aohE 'GLIBC_2\.[0-9]+' "$command" | sort -V | tail -1)"
[[ "$name" == *"manylinux_2_${newest#GLIBC_2.}_"* || "$name" > "samestate-0-py3-none-manylinux_2_${newest#GLIBC_2.}_" ]] ||
  complain "$name, and it needs $newest"

wheel without
[[ "$(basename without/*.whl)" =~ -py3-none-any\.whl$ ]] || complain 'without a command it is not pure'
pip install --quiet --no-deps --force-reinstall without/*.whl >said || complain "it does not install: $(tail -1 said)"
inside samestate --version
[[ $code -eq 2 ]] || complain "without a command: exit $code instead of 2"
grep -q 'set SAMESTATE' err || complain 'does not say what is missing'
[[ "$(wc -l <err)" -eq 1 ]] || complain 'not one line on stderr'

checks=$((checks + 1))
rm -rf source && mkdir source && cp -r "$source_folder" source/python
# A library whose licence nobody knows is not passed on: said, with the remedy.
mkdir -p unknown/cli unowned && cp "$(ldd "$samestate" | awk '/libpugixml/ {print $3}')" unowned/libpugixml.so.1
"$environment/bin/python" - >out 2>err <<END
import re, runpy, sys, types
source = open('source/python/setup.py').read()
names = {'__file__': 'source/python/setup.py'}
exec(source[:source.index("class WithCommand")], names)
names['licences_of']('$folder/unowned/libpugixml.so.1')
END
[[ $? -ne 0 ]] || complain 'a library without a licence is taken'
holds err 'libpugixml.txt SAMESTATE_LICENSES' || complain "does not say what is missing: $(tail -1 err)"
SAMESTATE_BUILD=/nowhere pip wheel --no-deps --no-build-isolation -w none ./source/python >err && complain 'a build that is none'
holds err 'SAMESTATE_BUILD=/nowhere cli/samestate' || complain 'does not name the folder'

finish
