// The page's script: copying, sorting, filtering, the theme. Without it everything can still be read.
'use strict';
(function () {
  const root = document.documentElement;
  const toast = document.getElementById('toast');
  const commands = JSON.parse(document.getElementById('commands').textContent);

  let timer = 0;
  function say(text) {
    toast.textContent = text;
    toast.classList.add('on');
    clearTimeout(timer);
    timer = setTimeout(() => toast.classList.remove('on'), 4000);
  }

  /// For a page from disk, where the clipboard is out of reach.
  function copyByHand(text) {
    const area = document.createElement('textarea');
    area.value = text;
    area.style.position = 'fixed';
    area.style.opacity = '0';
    document.body.append(area);
    area.select();
    let ok = false;
    try {
      ok = document.execCommand('copy');
    } catch (e) {
      ok = false;
    }
    area.remove();
    return ok;
  }

  function copy(text) {
    const done = ok => {
      root.dataset.copied = text;
      say((ok ? 'copied: ' : 'copy this: ') + text);
    };
    if (navigator.clipboard && window.isSecureContext) {
      navigator.clipboard.writeText(text).then(() => done(true), () => done(copyByHand(text)));
    } else {
      done(copyByHand(text));
    }
  }

  /// Copies the command that `target` stands for; false where it stands for none.
  function act(target) {
    const at = target.closest('[data-point],[data-copy]');
    if (!at) return false;
    const text = at.dataset.copy !== undefined ? at.dataset.copy : commands[Number(at.dataset.point)];
    if (text === undefined) return false;
    copy(text);
    return true;
  }

  for (const mark of document.querySelectorAll('.mark')) {
    mark.setAttribute('tabindex', '0');
    mark.setAttribute('role', 'button');
    const title = mark.querySelector('title');
    if (title) title.textContent += '; click to copy the case';
  }

  function value(row, column, number) {
    const cell = row.cells[column];
    if (!cell) return number ? NaN : '';
    if (!number) return cell.textContent;
    const v = cell.dataset.v;
    return v === 'inf' ? Infinity : v === '-inf' ? -Infinity : Number(v);
  }

  /// By number or by name; rows that are alike keep their order. What is not a number stands last both ways.
  function compare(a, b, number, direction) {
    if (!number) return a.value.localeCompare(b.value, 'en') * direction || a.place - b.place;
    const x = Number.isNaN(a.value);
    const y = Number.isNaN(b.value);
    if (x || y) return x - y || a.place - b.place;
    return (a.value === b.value ? 0 : a.value < b.value ? -1 : 1) * direction || a.place - b.place;
  }

  function sort(head) {
    const table = head.closest('table');
    const body = table.tBodies[0];
    const number = head.classList.contains('n');
    const up = head.getAttribute('aria-sort') !== 'ascending';
    for (const other of table.tHead.rows[0].cells) other.removeAttribute('aria-sort');
    head.setAttribute('aria-sort', up ? 'ascending' : 'descending');
    const rows = Array.from(body.rows).map((row, place) => ({row, value: value(row, head.cellIndex, number), place}));
    rows.sort((a, b) => compare(a, b, number, up ? 1 : -1));
    body.append(...rows.map(r => r.row));
  }

  document.addEventListener('click', event => {
    if (act(event.target)) return;
    const head = event.target.closest('thead th');
    if (head) sort(head);
  });
  document.addEventListener('keydown', event => {
    const pressed = event.key === 'Enter' || event.key === ' ';
    if (pressed && event.target.classList.contains('mark') && act(event.target)) event.preventDefault();
  });

  for (const field of document.querySelectorAll('.filter input')) {
    field.addEventListener('input', () => {
      const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
      for (const row of field.closest('.table').querySelector('tbody').rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every(w => text.includes(w));
      }
    });
  }

  /// A page from disk may have no storage.
  function storedTheme() {
    try {
      return localStorage.getItem('samestate-theme');
    } catch (e) {
      return null;
    }
  }
  if (storedTheme() === 'dark' || storedTheme() === 'light') root.dataset.theme = storedTheme();
  document.getElementById('theme').addEventListener('click', () => {
    const dark = root.dataset.theme
      ? root.dataset.theme === 'dark'
      : matchMedia('(prefers-color-scheme: dark)').matches;
    root.dataset.theme = dark ? 'light' : 'dark';
    try {
      localStorage.setItem('samestate-theme', root.dataset.theme);
    } catch (e) {
      // The theme then lasts as long as the page.
    }
  });

  // On paper everything is open.
  let closed = [];
  window.addEventListener('beforeprint', () => {
    closed = Array.from(document.querySelectorAll('details:not([open])'));
    for (const d of closed) d.open = true;
  });
  window.addEventListener('afterprint', () => {
    for (const d of closed) d.open = false;
  });

  /// A link into a closed part opens it.
  function reveal() {
    const at = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (let d = at && at.closest('details'); d; d = d.parentElement.closest('details')) d.open = true;
  }
  window.addEventListener('hashchange', reveal);
  reveal();
  root.dataset.ready = 'yes';
})();
