// Sorts and filters tables, and copies them as CSV. All of the page is read without it; it asks nobody for anything.
(() => {
  'use strict';
  const NUMBER = /^[-+\u2212]?(\d[\d,]*\.?\d*|\.\d+)(e[-+]?\d+)?(?![\w.])/i;
  const FIGURE = /^[-+\u2212]?(\d[\d,]*\.?\d*|\.\d+)(e[-+]?\d+)?( ?%)?( \[[-+\u2212\d., \u2026]*\])?$/i;
  const FORMULA = /^\s*[=+\-@\t\r\uff1d\uff0b\uff0d\uff20]/;

  const textOf = cell => cell.textContent.replace(/\s+/g, ' ').trim();
  const make = (tag, properties, ...children) => {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(...children);
    return made;
  };

  // a spreadsheet takes a text that begins with one of these signs for a formula; a figure stays a figure
  const quoted = text => {
    const safe = FORMULA.test(text) && !FIGURE.test(text) ? `'${text}` : text;
    return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  const csvOf = table =>
    [...table.rows]
      .filter(row => !row.hidden)
      .map(row => [...row.cells].map(cell => quoted(textOf(cell))).join(',') + '\r\n')
      .join('');

  const copy = async text => {
    if (navigator.clipboard) {
      try {
        return await navigator.clipboard.writeText(text);
      } catch { /* not allowed here: the older way */ }
    }
    const area = make('textarea', { value: text, className: 'aside', readOnly: true });
    document.body.append(area);
    area.select();
    const copied = document.execCommand('copy');
    area.remove();
    if (!copied) throw new Error('not copied');
  };

  const tell = (where, text) => {
    where.textContent = text;
  };

  const valueOf = text => {
    const found = NUMBER.exec(text);
    return found ? parseFloat(found[0].replaceAll(',', '').replace('\u2212', '-')) : NaN;
  };
  // by number where most cells have one, else by text; what has none comes last either way
  const comparison = (texts, direction) => {
    const filled = texts.filter(text => text);
    const numbers = filled.filter(text => !Number.isNaN(valueOf(text)));
    if (2 * numbers.length < filled.length) {
      return (a, b) => !a - !b || direction * a.localeCompare(b, 'en', { numeric: true });
    }
    return (a, b) => {
      const [x, y] = [valueOf(a), valueOf(b)];
      return Number.isNaN(x) - Number.isNaN(y) || direction * (x - y) || 0;
    };
  };

  const sortable = table => {
    const body = table.tBodies[0], rows = [...body.rows], headers = [...table.tHead.rows[0].cells];
    headers.forEach((header, column) => {
      const button = make('button', { type: 'button' }, ...header.childNodes);
      header.append(button);
      button.addEventListener('click', () => {
        const was = header.getAttribute('aria-sort');
        headers.forEach(one => one.removeAttribute('aria-sort'));
        const next = { ascending: 'descending', descending: '' }[was] ?? 'ascending';
        if (next) header.setAttribute('aria-sort', next);
        const texts = new Map(rows.map(row => [row, textOf(row.cells[column])]));
        const compare = comparison([...texts.values()], next === 'descending' ? -1 : 1);
        body.append(...(next ? [...rows].sort((a, b) => compare(texts.get(a), texts.get(b))) : rows));
      });
    });
  };

  const filterOf = (table, count) => {
    const rows = [...table.tBodies[0].rows];
    const texts = new Map(rows.map(row => [row, [...row.cells].map(textOf).join(' ').toLowerCase()]));
    const field = make('input', { type: 'search', placeholder: 'Filter rows' });
    field.setAttribute('aria-label', `Rows that hold these words: ${nameOf(table)}`);
    field.addEventListener('input', () => {
      const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
      for (const row of rows) row.hidden = !words.every(word => texts.get(row).includes(word));
      const shown = rows.filter(row => !row.hidden).length;
      tell(count, words.length ? `${shown} of ${rows.length} rows` : '');
    });
    return field;
  };

  const nameOf = table => table.closest('.box').getAttribute('aria-label');

  for (const table of document.querySelectorAll('.box > table')) {
    const said = make('span', { className: 'soft' });
    said.setAttribute('role', 'status');
    const button = make('button', { type: 'button' }, 'Copy as CSV');
    button.setAttribute('aria-label', `Copy as CSV: ${nameOf(table)}`);
    button.addEventListener('click', () => {
      copy(csvOf(table)).then(() => tell(said, 'Copied'), () => tell(said, 'This browser does not let pages copy'));
    });
    const tools = make('div', { className: 'tools' });
    const box = table.closest('.box');
    if (table.classList.contains('sorts')) {
      sortable(table);
      tools.append(filterOf(table, said));
      box.before(tools);
    } else {
      box.after(tools);
    }
    tools.append(button, said);
  }
})();
