#!/usr/bin/env bash
# The report in a real browser: it loads without an error on the console, a click on a dot copies the case's
# command, tables sort, the theme turns, nothing is wider than a phone.
# usage: page_test.sh SAMESTATE EXAMPLES PLUGIN; exit 77 without Chromium.
set -uo pipefail

examples="$(realpath "$2")"
record="$examples/sweep.jsonl"
plugin="$(realpath "$3")"
browser=''
for name in chromium chromium-browser google-chrome; do
  if command -v "$name" >/dev/null; then browser="$name"; break; fi
done
if [[ -z "$browser" ]]; then
  echo 'skipped: no Chromium here'
  exit 77
fi
source "$(dirname "$0")/../../cli/prelude.sh"
plots=()
command -v gnuplot >/dev/null || plots=(--no-plots)
run 0 report "$record" --title 'A title that is longer than a telephone is wide' --out report --no-evidence "${plots[@]}"

# The page itself, and after its own script one that does what a reader does and writes down what it saw.
cat >reader.html <<'END'
<script>
(function () {
  const root = document.documentElement, seen = {};
  // Without a hand on the mouse a browser lets no page write to its clipboard: the test holds it.
  let held = '';
  Object.defineProperty(navigator, 'clipboard', {configurable: true,
    value: {writeText: text => { held = text; return Promise.resolve(); }}});
  const dot = document.querySelector('.mark path') || document.querySelector('[data-point]');
  dot.dispatchEvent(new MouseEvent('click', {bubbles: true}));
  seen.clipboard = held.startsWith("samestate repro 'v1 ");
  Object.defineProperty(navigator, 'clipboard', {configurable: true, value: undefined});
  document.execCommand = () => { held = document.activeElement.value; return true; };
  held = '';
  document.querySelector('[data-copy]').click();
  seen.fallback = held.startsWith("samestate repro 'v1 ");
  const table = document.querySelector('#points table'), heads = table.tHead.rows[0].cells;
  const column = Array.from(heads).findIndex(h => h.textContent === 'RMS error');
  const values = () => Array.from(table.tBodies[0].rows).map(r => Number(r.cells[column].dataset.v)).filter(v => !Number.isNaN(v));
  const rising = v => v.every((x, i) => i === 0 || v[i - 1] <= x);
  heads[column].querySelector('button').click();
  seen.ascending = rising(values());
  heads[column].querySelector('button').click();
  seen.descending = rising(values().reverse());
  const field = document.querySelector('#points .filter input');
  const rows = table.tBodies[0].rows;
  field.value = 'no such row'; field.dispatchEvent(new Event('input'));
  seen.filtered = Array.from(rows).every(r => r.hidden);
  field.value = ''; field.dispatchEvent(new Event('input'));
  seen.unfiltered = Array.from(rows).every(r => !r.hidden);
  const before = getComputedStyle(document.body).backgroundColor;
  document.getElementById('theme').click();
  seen.theme = getComputedStyle(document.body).backgroundColor !== before;
  window.dispatchEvent(new Event('beforeprint'));
  seen.print = !document.querySelector('details:not([open])');
  // Nothing scrolls sideways but the boxes of tables, all sections open.
  seen.width = root.scrollWidth <= root.clientWidth && document.body.scrollWidth <= root.clientWidth;
  const inside = e => { for (let p = e; p; p = p.parentElement) if (p.classList.contains('scroll')) return true; return false; };
  seen.inside = Array.from(document.querySelectorAll('main *')).every(e => inside(e) || e.getBoundingClientRect().right <= root.clientWidth + 1);
  const title = document.createRange(), button = document.getElementById('theme').getBoundingClientRect();
  title.selectNodeContents(document.querySelector('h1'));
  seen.title = Array.from(title.getClientRects()).every(r => r.right <= button.left || r.top >= button.bottom);
  seen.boxes = Array.from(document.querySelectorAll('.scroll')).every(e => e.getBoundingClientRect().right <= root.clientWidth && getComputedStyle(e).overflowX === 'auto');
  root.dataset.rows = rows.length;
  for (const name of Object.keys(seen)) root.setAttribute('data-seen-' + name, seen[name]);
  if (window.parent !== window)
    window.parent.postMessage({window: window.innerWidth, width: seen.width, inside: seen.inside, boxes: seen.boxes, title: seen.title}, '*');
})();
</script>
END
sed "/<\/body>/{
  r reader.html
}" report/index.html >report/read.html

# A headless window is never narrower than 500 pixels; a frame in it is as narrow as a telephone.
frame() {
  cat >"report/$2" <<END
<!DOCTYPE html><html><body><script>
window.addEventListener('message', event => {
  for (const [name, value] of Object.entries(event.data)) document.documentElement.setAttribute('data-frame-' + name, value);
});
</script><iframe style="width:$1px;height:800px;border:0" src="$3"></iframe></body></html>
END
}

look() {
  "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir="$folder/profile" \
    --enable-logging=stderr --v=0 --virtual-time-budget=5000 --window-size="$1",900 --dump-dom \
    "file://$folder/report/$2" >dom 2>log || {
    tail -5 log
    complain "$browser failed"
  }
  ! grep 'CONSOLE' log || complain "console messages on $2"
}
expect() {
  grep -q -- "$1" dom || complain "the page does not hold: $1"
}

look 1280 index.html
expect 'data-ready="yes"'
# Every other example too.
for other in "$examples"/*.jsonl; do
  [[ "$other" == "$record" ]] && continue
  run 0 report "$other" --out report/other --no-evidence "${plots[@]}"
  look 1280 other/index.html
  expect 'data-ready="yes"'
done
look 1280 read.html
expect "data-copied=\"samestate repro 'v1 "
expect "copied: samestate repro 'v1 "
for thing in clipboard fallback ascending descending filtered unfiltered theme print width; do expect "data-seen-$thing=\"true\""; done
expect 'data-rows="[1-9]'
look 500 read.html
for thing in width inside boxes; do expect "data-seen-$thing=\"true\""; done
frame 390 telephone.html read.html
look 500 telephone.html
for thing in 'window="390"' 'width="true"' 'inside="true"' 'boxes="true"' 'title="true"'; do expect "data-frame-$thing"; done
# On paper nothing scrolls: every table fits a page of A4, 277 mm wide at 96 pixels an inch.
sed 's/@media print/@media all/g' report/read.html >report/paper.html
frame 1047 printed.html paper.html
look 1280 printed.html
expect 'data-frame-width="true"'
# The check bites: a table that does not scroll in its box is seen.
sed '/^\.scroll {$/,/^}$/s/overflow: auto;/overflow: visible;/' report/read.html >report/wide.html
frame 390 broken.html wide.html
look 500 broken.html
grep -q 'data-frame-width="false"' dom || complain 'a page that is wider than a telephone was not seen'

# On a telephone failures and cases that stand out are stacked: their boxes have nothing to scroll to; on a screen they are
# tables.
run 1 gate --plugin "$plugin" --kernel wrong.gated_delta_rule.recurrent --max-cases 40 --threads 1 --jsonl gate.jsonl
run 0 report gate.jsonl --out report/failures --no-evidence "${plots[@]}"
cat >stacked.html <<'END'
<script>
const boxes = Array.from(document.querySelectorAll('.scroll')).filter(e => e.querySelector('[data-column="repeat with"]'));
document.querySelectorAll('details').forEach(e => { e.open = true; });
window.parent.postMessage({tables: boxes.length, stacked: boxes.every(e => e.scrollWidth <= e.clientWidth &&
  getComputedStyle(e.querySelector('td')).display !== 'table-cell')}, '*');
</script>
END
sed "/<\/body>/{
  r stacked.html
}" report/failures/index.html >report/failures.html
frame 390 stacked_frame.html failures.html
look 500 stacked_frame.html
expect 'data-frame-stacked="true"'
expect 'data-frame-tables="3"'
frame 1200 table_frame.html failures.html
look 1280 table_frame.html
expect 'data-frame-stacked="false"'

finish
