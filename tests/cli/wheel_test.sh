#!/usr/bin/env bash
# A release's files as their users meet them: the wheel, the .deb and the tarball of a command that is built
# already. Each is installed where PATH leads to neither the build nor a compiler, and contains the command,
# the data that it reads, its pages and its libraries with their licences, and judges a kernel in Python. A
# part that cannot be built says what is missing. Skipped, with the reason, if no wheel can be built.
# usage: wheel_test.sh SAMESTATE PYTHON BUILD FOLDER: FOLDER keeps the environment from one run to the next
set -uo pipefail

python="$2"
build="$(realpath "$3")"
root="$(realpath "$(dirname "$0")/../..")"
mkdir -p "$4" && environment="$(realpath "$4")"
source "$(dirname "$0")/prelude.sh"

skip() {
  printf 'skipped: %s\n' "$1"
  exit 77
}
pip() { timeout 240 "$environment/bin/python" -m pip --disable-pip-version-check "$@" 2>&1; }
if [[ ! -e "$environment/packs" ]]; then
  rm -rf "$environment"
  "$python" -m venv "$environment" >venv 2>&1 || skip "$python makes no virtual environment: $(tail -1 venv)"
  pip install --quiet --timeout 20 --retries 1 'scikit-build-core>=0.10' numpy >said || skip "no packages: $(tail -1 said)"
  touch "$environment/packs"
fi

# wheel FOLDER SETTING..: builds FOLDER/*.whl with settings of pip's -C.
wheel() {
  checks=$((checks + 1))
  invocation="pip wheel ($1)"
  mkdir -p "$1"
  pip wheel --quiet --no-deps --no-build-isolation -w "$1" "${@:2}" "$root/python" >err || complain 'no wheel'
}
# inside PATH COMMAND...: runs it with that PATH and no other variable that leads to the build or a compiler.
python_path=
inside() {
  checks=$((checks + 1))
  invocation="${*:2}"
  code=0
  timeout 240 env -i HOME="$folder" PATH="$1" PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$python_path" "${@:2}" >out 2>err || code=$?
}
cat >mine.py <<'END'
import numpy as np
import samestate

@samestate.kernel("l2norm", "fused", contracts=["fp32"])
def l2(x):
    return (x / np.sqrt((x.astype(np.float64) ** 2).sum(-1, keepdims=True) + 1e-6)).astype(np.float32)
END
sed 's/return (/return np.float32(1.01) * (/' mine.py >wrong.py

# used WHAT PATH SHARE: checks that the command that PATH leads to judges a correct kernel and a wrong one,
# has the corpus, and that SHARE has its pages.
used() {
  inside "$2" samestate --version
  [[ $code -eq 0 && "$(cat out)" == "$("$samestate" --version)" ]] || complain "$1: it is not the command"
  inside "$2" samestate gate --subject python:mine.py --where 'T=..64 D=..256' --max-cases 20
  { [[ $code -eq 0 ]] && grep -q 'pass' out; } || complain "$1: a kernel in Python: exit $code"
  inside "$2" samestate gate --subject python:wrong.py --where 'T=..64 D=..256' --max-cases 20 --fail-fast
  [[ $code -eq 1 ]] || complain "$1: a wrong kernel: exit $code"
  inside "$2" samestate gate --device cpu --system retention --effort 0 --list --max-cases 400
  [[ "$(head -1 out)" == "$(grep -m1 '^v1 ' "$root/fuzz/corpus/retention.txt")" ]] || complain "$1: the corpus is not in it"
  grep -q 'SS samestate gate' "$3/man/man1/samestate.1" || complain "$1: no manual page"
  grep -q 'complete .*samestate' "$3/bash-completion/completions/samestate" || complain "$1: no completion for bash"
  grep -q '#compdef samestate' "$3/zsh/site-functions/_samestate" || complain "$1: none for zsh"
  grep -q 'complete -c samestate' "$3/fish/vendor_completions.d/samestate.fish" || complain "$1: none for fish"
}
# carries LIB: checks a folder of libraries, each with the text of its licence and the longer text that this
# one names, and without a runtime.
carries() {
  checks=$((checks + 1))
  invocation="carried in $1"
  [[ "$(ls "$1"/*.so* | wc -l)" -ge 4 ]] || complain 'few libraries'
  ls "$1" | grep -E '^(libc|libm|libstdc[+][+]|libgcc_s|ld-[^.]*)[.]' && complain 'runtimes of this machine'
  for library in "$1"/*.so*; do
    licence="$(cat "$1/licenses/$(basename "$library")".* 2>/dev/null)"
    grep -qiE 'licen[cs]e|permission is hereby granted' <<<"$licence" || complain "no licence of $(basename "$library")"
    [[ "$licence" != *common-licenses/LGPL* || "$licence" == *'GNU LESSER GENERAL PUBLIC LICENSE'* ]] ||
      complain "the licence of $(basename "$library") is only named"
  done
}

of_build="--config-settings=cmake.define.SAMESTATE_BUILD=$build"
wheel with "$of_build" --config-settings=cmake.define.SAMESTATE_CARRY=ON
[[ "$(basename with/*.whl)" =~ ^samestate-[0-9.]+-py3-none-linux_[a-z0-9_]+\.whl$ ]] || complain "the tag of $(ls with)"
pip install --quiet --no-deps --force-reinstall with/*.whl >said || complain "it does not install: $(tail -1 said)"
used 'the wheel' "$environment/bin" "$environment/share"
inside "$environment/bin" python -c 'import samestate; print(samestate.executable())'
grep -q '/site-packages/samestate/bin/samestate$' out || complain 'the command is not the one inside'
command="$(cat out)"
carries "$(dirname "$command")/../lib"
ldd "$command" | grep -E 'lib(fmt|mpfi|mpfr|gmp|pugixml)' | grep -v '/site-packages/samestate/' && complain 'libraries of this machine'
# A library with an unknown licence is not passed on.
checks=$((checks + 1))
cmake "-DPROGRAM=$command" -DFOLDER=carried -P "$root/cmake/carried_libraries.cmake" >err 2>&1 &&
  complain 'a library without a licence is taken'
tr '\n' ' ' <err >said
holds said '.txt SAMESTATE_LICENSES' || complain 'does not say what is missing'

# The Python part alone says what is missing.
wheel without --config-settings=wheel.cmake=false
[[ "$(basename without/*.whl)" =~ -py3-none-any\.whl$ ]] || complain 'without a command it is not pure'
pip install --quiet --no-deps --force-reinstall without/*.whl >said || complain "it does not install: $(tail -1 said)"
inside "$environment/bin" samestate --version
[[ $code -eq 2 ]] || complain "without a command: exit $code instead of 2"
grep -q 'set SAMESTATE' err || complain 'does not say what is missing'
[[ "$(wc -l <err)" -eq 1 ]] || complain 'not one line on stderr'
pip uninstall --quiet --yes samestate >said

# The .deb and the tarball are unpacked: the tarball has the command's libraries with it, and the .deb names
# packages that have them.
invocation=cpack
cmake -S "$root" -B pack "-DSAMESTATE_BUILD=$build" -DSAMESTATE_CARRY=ON >said 2>&1 || complain "no packing: $(tail -3 said)"
(cd pack && cpack -G TGZ -D CPACK_COMPONENT_INCLUDE_TOPLEVEL_DIRECTORY=ON -D 'CPACK_COMPONENTS_ALL=command;pages;carried;python') >said 2>&1 || complain "no tarball: $(tail -3 said)"
mkdir tarball && tar -xzf pack/*.tar.gz -C tarball --strip-components=1
mkdir tools && printf '#!/bin/sh\nexec "%s/bin/python" "$@"\n' "$environment" >tools/python3 && chmod +x tools/python3
python_path="$folder/tarball/lib/python3/dist-packages"
used 'the tarball' "$folder/tarball/bin:$folder/tools" tarball/share
carries tarball/lib
if command -v dpkg-shlibdeps >/dev/null; then
  (cd pack && cpack -G DEB -D 'CPACK_COMPONENTS_ALL=command;pages;python') >said 2>&1 || complain "no .deb: $(tail -3 said)"
  dpkg-deb -f pack/*.deb Depends >depends
  holds depends 'libc6 libfmt libmpfi libmpfr' || complain "the .deb depends on $(cat depends)"
  dpkg-deb -x pack/*.deb deb
  [[ -z "$(find deb -name '*.so*')" ]] || complain 'the .deb has libraries of other packages'
  python_path="$folder/deb/usr/lib/python3/dist-packages"
  used 'the .deb' "$folder/deb/usr/bin:$folder/tools" deb/usr/share
fi

# The parts that a build lacks are named, with the remedy.
checks=$((checks + 2))
pip wheel --no-deps --no-build-isolation -w none --config-settings=cmake.define.SAMESTATE_BUILD=/nowhere "$root/python" >err &&
  complain 'a build that is none'
holds err 'SAMESTATE_BUILD=/nowhere' || complain 'does not name the folder'
cmake -S "$root" -B lacking -DSAMESTATE_TESTS=OFF -DCMAKE_DISABLE_FIND_PACKAGE_fmt=ON -DMPFI_INCLUDE_DIR=OFF >err 2>&1 &&
  complain 'a build without fmt is configured'
holds err 'apt-get libfmt-dev libmpfi-dev' || complain 'does not name the packages'
grep -q eigen err && complain 'a package that is there is named'

finish
