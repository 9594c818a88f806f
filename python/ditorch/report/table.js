// Tables that sort by a click on a heading and filter while somebody types.
//
// A column: { name, title, show(row) -> text or element, value(row) for sorting, number, kind: 'name' | 'text' }.

const PAGE_ROWS = 25;

function makeTable({ id, label, columns, rows, sort, open, empty, most = PAGE_ROWS }) {
  if (!rows.length) return make('p', { class: 'none', text: empty || 'nothing recorded' });
  const state = { words: [], sort: sort || null, down: true, shown: most };
  const value = (column, row) => (column.value ? column.value(row) : row[column.name]);
  const body = make('tbody');
  const count = make('span', { class: 'count', role: 'status' });
  const more = make('button', { type: 'button', class: 'more', text: 'more rows', on: { click: () => show(state.shown * 4) } });
  const search = make('input', { type: 'search', placeholder: 'filter', 'aria-label': `filter ${label}`, id: `${id}-filter` });
  const texts = rows.map((row) => columns.map((column) => String(value(column, row) ?? '')).join('\n').toLowerCase());
  const headings = columns.map((column) => {
    const button = make('button', { type: 'button', text: column.title, on: { click: () => order(column) } });
    if (column.help) button.title = column.help;
    return make('th', { scope: 'col', class: column.number ? 'number' : null }, button);
  });

  function order(column) {
    state.down = state.sort === column.name ? !state.down : Boolean(column.number);
    state.sort = column.name;
    fill();
  }
  function compare(a, b) {
    if (a === b) return 0;
    if (a === null || a === undefined || a === '') return 1;
    if (b === null || b === undefined || b === '') return -1;
    const [x, y] = [toNumber(a), toNumber(b)];
    const less = isNumber(x) && isNumber(y) ? x - y : String(a).localeCompare(String(b));
    return state.down ? -less : less;
  }
  const toNumber = (one) => (isNumber(one) ? one : one === 'inf' ? Infinity : one === '-inf' ? -Infinity : one);
  function fill() {
    const column = columns.find((one) => one.name === state.sort);
    let chosen = rows.map((row, index) => index).filter((index) => state.words.every((word) => texts[index].includes(word)));
    if (column) chosen = chosen.sort((a, b) => compare(value(column, rows[a]), value(column, rows[b])) || a - b);
    columns.forEach((one, index) => {
      if (one === column) headings[index].setAttribute('aria-sort', state.down ? 'descending' : 'ascending');
      else headings[index].removeAttribute('aria-sort');
    });
    body.replaceChildren(...chosen.slice(0, state.shown).map((index) => makeRow(rows[index])));
    count.textContent = chosen.length === rows.length ? `${grouped.format(rows.length)} rows` :
      `${grouped.format(chosen.length)} of ${grouped.format(rows.length)} rows`;
    more.hidden = chosen.length <= state.shown;
  }
  function makeRow(row) {
    const line = make('tr', open ? { class: 'can', tabindex: 0 } : {});
    for (const column of columns) {
      const shown = column.show ? column.show(row) : value(column, row);
      const cell = make('td', { class: column.number ? 'number' : column.kind || null });
      cell.append(shown instanceof Node ? shown : String(shown ?? ''));
      line.append(cell);
    }
    if (open) {
      const act = () => toggle(line, row);
      line.addEventListener('click', () => { if (!String(getSelection())) act(); });
      line.addEventListener('keydown', (event) => { if (event.key === 'Enter') act(); });
    }
    return line;
  }
  function toggle(line, row) {
    if (line.nextSibling && line.nextSibling.classList.contains('open')) return line.nextSibling.remove();
    line.after(make('tr', { class: 'open' }, make('td', { colspan: columns.length }, open(row))));
  }
  function show(number) {
    state.shown = number;
    fill();
  }
  search.addEventListener('input', () => {
    state.words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    fill();
  });
  addEventListener('beforeprint', () => show(200));
  addEventListener('afterprint', () => show(most));
  fill();
  const tools = rows.length > 8 || open ? make('div', { class: 'tools' }, search, count) : null;
  const table = make('table', { id, 'aria-label': label }, make('thead', {}, make('tr', {}, ...headings)), body);
  return make('div', {}, tools, make('div', { class: 'scroll' }, table), more);
}

function makeFacts(pairs) {
  const list = make('dl');
  for (const [name, text] of pairs) {
    if (text === '' || text === null || text === undefined) continue;
    list.append(make('dt', { text: name }), make('dd', {}, text instanceof Node ? text : String(text)));
  }
  return list;
}
