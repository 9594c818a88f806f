// The sections of the page, in order. Data is the JSON in the page; details are inflated when they are first wanted.

const data = JSON.parse(byId('data').textContent);
const main = byId('main');
const nav = byId('nav');

let inflated = null;
function getDetails() {
  inflated = inflated || (async () => {
    const bytes = Uint8Array.from(atob(byId('details').textContent), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate'));
    return JSON.parse(await new Response(stream).text());
  })();
  return inflated;
}

/// An operator has one colour on the whole page; those that take least time share the last.
const hues = new Map(data.timeline.operators.slice(0, 9).map((one, index) => [one.name, index]));
function getHue(name) {
  return hues.has(name) ? hues.get(name) : 8;
}

/// `title` is "in the list of sections: in full", or both at once.
function section(id, titles, lead, ...parts) {
  const [short, title = short] = titles.split(': ');
  const shown = parts.filter(Boolean);
  if (!shown.length) return;
  const heading = make('h2', { text: title, id: `${id}-title` });
  main.append(make('section', { id, class: 'card', 'aria-labelledby': `${id}-title` }, heading,
    lead ? make('p', { class: 'lead', text: lead }) : null, ...shown));
  nav.append(make('a', { href: `#${id}`, text: short }));
}

/// A part that needs the details: its place now, its contents later.
function later(build) {
  const place = make('div', {}, make('p', { class: 'none', text: 'reading ...' }));
  getDetails().then((details) => place.replaceChildren(build(details)), (error) => {
    place.replaceChildren(make('p', { class: 'none', text: `the details cannot be read: ${error.message}` }));
  });
  return place;
}

const rank = (index) => (data.lanes[index] ? data.lanes[index].label : '');
const labelled = data.lanes.length > 1;
const number = (name, title, show, help) => ({ name, title, number: true, show: show ? (row) => show(row[name]) : (row) => showCount(row[name]), help });

const alarm = (count) => make('span', { class: count ? 'bad' : 'faint', text: showCount(count) });

function meter(share) {
  return make('span', {}, showShare(share), make('span', { class: 'meter' }, make('i', { style: { width: `${Math.min(100, 100 * share)}%` } })));
}

function placeOf(worst) {
  if (!worst) return '';
  const instead = worst.value !== undefined ? `: ${showNumber(worst.value, 6)} instead of ${showNumber(worst.reference, 6)}` : '';
  return worst.at !== undefined ? `at ${Array.isArray(worst.at) ? `[${worst.at.join(', ')}]` : worst.at}${instead}` : '';
}

function openOperator(row) {
  const worst = row.worst || {};
  const finding = data.findings.find((one) => one.name === row.name) || {};
  const best = { ...worst, ...Object.fromEntries(Object.entries(finding).filter(([, value]) => value !== '')) };
  const place = make('div', {}, makeFacts([
    ['worst element', placeOf(best)],
    ['error', worst.error_size !== undefined ? `${showNumber(worst.error_size)}, allowed ${showNumber(worst.allowed)}` : ''],
    ['elements', worst.wrong !== undefined ? `${showCount(worst.wrong)} of ${showCount(worst.numel)}` : ''],
    ['tensor', best.dtype ? `${best.dtype}[${(best.shape || []).join(', ')}]` : ''],
    ['call', worst.id !== undefined ? `step ${worst.step}, call ${worst.id}, ${worst.what}, ${rank(worst.lane)}` : ''],
    ['module', best.module], ['place', best.location], ['why', best.reason],
    ['forward', row.forward_ns ? showTime(row.forward_ns) : ''], ['backward', row.backward_ns ? showTime(row.backward_ns) : ''],
    ['by rank', labelled && row.lanes ? Object.entries(row.lanes).map(([lane, ns]) => `${rank(lane)} ${showTime(ns)}`).join(', ') : ''],
  ]));
  place.append(later((details) => {
    const place = details.texts.indexOf(row.name);
    const rows = details.signatures.filter((one) => one[3] === place)
      .map(([ns, count, longest, , signature]) => ({ ns, count, longest, signature: details.texts[signature] }));
    return rows.length ? makeTable({
      id: `signatures-${place}`, label: `signatures of ${row.name}`, rows, sort: 'ns',
      columns: [{ name: 'signature', title: 'signature', kind: 'name' }, number('count', 'calls'),
        number('ns', 'total', showTime), number('longest', 'longest', showTime)],
    }) : make('span');
  }));
  return place;
}

const OPERATORS = [
  { name: 'name', title: 'operator', kind: 'name' },
  number('calls', 'calls'),
  number('compared', 'compared'),
  { ...number('wrong', 'wrong'), show: (row) => alarm(row.wrong) },
  number('ratio', '× allowed', showNumber, 'the worst error as a multiple of what is allowed'),
  { ...number('nan', 'NaN'), show: (row) => alarm(row.nan) },
  number('forward_ns', 'forward', (ns) => (ns ? showTime(ns) : '')),
  number('backward_ns', 'backward', (ns) => (ns ? showTime(ns) : '')),
  { ...number('share', 'share'), show: (row) => (row.total_ns ? meter(row.share) : '') },
  number('longest_ns', 'longest', showTime),
  ...(labelled ? [number('imbalance', 'ranks apart', (value) => (isNumber(value) ? `${showNumber(value)} ×` : ''), 'time of the slowest rank over that of the fastest')] : []),
];

section('operators', 'Operators', 'Wrong ones first, then those that take most of the time. A row opens: worst element, place, signatures.',
  makeTable({ id: 'operator-table', label: 'operators', columns: OPERATORS, rows: data.operators, open: openOperator, empty: 'no operator call was recorded' }));

const growing = data.growth.flatMap((one, index) => [
  { name: shorten(one.name), points: one.right, colour: colour(index % 9) },
  ...(one.wrong.length ? [{ name: `${shorten(one.name)}, wrong`, points: one.wrong, colour: 'var(--bad)', dots: true }] : []),
]).filter((one) => one.points.length);
section('growth', 'Errors: Errors over the calls', 'The largest difference from the CPU, over the number of the call; wrong results are dots. A line that climbs within its tolerance is an error that grows.',
  growing.length ? makeLines(growing, { log: true, label: 'errors over calls', labelX: 'call', showX: showCount, showY: (y) => showNumber(y, 1) }) : make('p', { class: 'none', text: 'no difference from the CPU was recorded' }));

const made = data.findings.filter((one) => one.tool === 'nan')
  .sort((a, b) => (a.verdict === 'propagator') - (b.verdict === 'propagator'));
const some = (count) => (isNumber(count) && count < 0 ? 'some' : showCount(count));
const where = (location) => String(location || '').replace(/^(.*?:\d+) .*$/s, '$1');
const FINDINGS = [
  { name: 'name', title: 'operator', kind: 'name' }, { name: 'kind', title: 'direction' }, number('step', 'step'), number('id', 'call'),
  ...(labelled ? [number('rank', 'rank')] : []),
];
section('nan', 'NaN: NaN and Inf', made.length ? 'Producers first: finite inputs, a result that is not. Propagators only pass on what they were given.' : null, makeTable({
  id: 'nan-table', label: 'NaN and Inf', rows: made, empty: 'none was seen', most: 12,
  columns: [...FINDINGS, { name: 'verdict', title: 'verdict' }, number('nan', 'NaN', some), number('inf', 'Inf', some), { name: 'module', title: 'module', kind: 'text' },
    { name: 'location', title: 'place', kind: 'text', show: (row) => make('span', { text: where(row.location), title: row.location }) }],
}));
section('wrong', 'Wrong results: Wrong results, one by one', 'The worst comparisons of the whole log, by how far they are off.', later((details) => makeTable({
  id: 'wrong-table', label: 'wrong results', rows: details.wrong, sort: 'ratio', most: 12, empty: 'no comparison was wrong',
  columns: [{ name: 'name', title: 'operator', kind: 'name' }, { name: 'what', title: 'what' }, number('step', 'step'), number('id', 'call'),
    ...(labelled ? [{ name: 'lane', title: 'rank', show: (row) => rank(row.lane) }] : []),
    number('error_size', 'error', showNumber), number('ratio', '× allowed', showNumber),
    { ...number('wrong', 'elements'), show: (row) => `${showCount(row.wrong)} of ${showCount(row.numel)}` }, { name: 'module', title: 'module', kind: 'text' }],
})));

section('flame', 'Modules: Time by module and operator', 'Width is time, forward and backward together. A click goes into a module, the rows above lead back.', makeFlame(data.flame));
section('timeline', 'Timeline: Time over the run', 'How much of each stretch of the run was spent in operators, by operator.',
  makeStack(data.timeline), makeStrips(data.timeline),
  make('h3', { text: 'One step, call by call' }), later((details) => makeTimeline(details.spans, details.texts)),
  make('h3', { text: 'The slowest calls' }), later((details) => {
    const rows = details.slowest.id.map((id, index) => ({
      id, step: details.slowest.step[index], lane: rank(details.slowest.lane[index]), ns: details.slowest.ns[index],
      name: details.texts[details.slowest.name[index]] + (details.slowest.backward[index] ? ' (backward)' : ''),
      module: details.texts[details.slowest.module[index]], signature: details.texts[details.slowest.signature[index]].replaceAll(';', '; ').replaceAll(',', ',\u200b'),
    }));
    return makeTable({ id: 'slow-table', label: 'slowest calls', rows, sort: 'ns', most: 12, empty: 'no times were recorded',
      columns: [{ name: 'name', title: 'operator', kind: 'name' }, number('ns', 'time', showTime), number('step', 'step'), number('id', 'call'),
        ...(labelled ? [{ name: 'lane', title: 'rank' }] : []), { name: 'module', title: 'module', kind: 'text' }, { name: 'signature', title: 'signature', kind: 'text' }] });
  }));

const timed = data.steps.slice(0, 9).flatMap((one, index) => [
  { name: `${one.label}, wall`, points: one.wall, colour: colour(index) },
  { name: `${one.label}, in operators`, points: one.operators, colour: colour(index), dash: '5 4' },
]).filter((one) => one.points.length);
section('steps', 'Steps: Time per step', null, timed.length ? makeLines(timed, { label: 'time per step', labelX: 'step', showX: showCount, showY: (y) => showTime(y * 1e9) || '0' }) : null);
const held = data.memory.slice(0, 4).flatMap((one, index) => [
  { name: `${one.label}, tensors on the device`, points: one.allocated, colour: colour(index * 2) },
  { name: `${one.label}, held by its allocator`, points: one.reserved, colour: colour(index * 2), dash: '5 4' },
  { name: `${one.label}, host`, points: one.resident, colour: colour(index * 2 + 1) },
]).filter((one) => one.points.some(([, y]) => y));
section('memory', 'Memory: Memory over the steps', null, held.length ? makeLines(held, { binary: true, label: 'memory over steps', labelX: 'step', showX: showCount, showY: (y) => showBytes(y) || '0' })
  : make('p', { class: 'none', text: 'not recorded: `ditorch run` writes it at every step of an optimizer' }));
const changed = (bytes) => (isNumber(bytes) ? `${bytes < 0 ? '−' : '+'}${showBytes(Math.abs(bytes))}` : '');
section('effect', 'Observer effect: What the tools changed', 'A measurement changes what it measures: time of a step with tools beside one without, losses bit by bit, largest memory.', makeTable({
  id: 'effect-table', label: 'what the tools changed', rows: data.effects.filter((row) => row.steps || row.loss), most: 12,
  empty: 'not measured: --baseline runs the program without tools too, --steps and --every leave steps without them',
  columns: [{ name: 'label', title: 'process' }, number('ratio', 'time', (value) => (isNumber(value) ? `${showNumber(value)} ×` : '')),
    number('with_ns', 'a step with tools', showTime), number('without_ns', 'without', showTime), { name: 'steps', title: 'steps' },
    { name: 'loss', title: 'losses', show: (row) => make('span', { class: row.is_changed ? 'bad' : '', text: row.loss || 'not compared (--baseline)' }) },
    number('host_peak', 'host memory', changed), number('device_peak', 'device memory', changed)],
}));
section('fallbacks', 'Fallbacks: Fallback ledger', 'Operators that the device does not have and that ran on the CPU instead.', makeTable({
  id: 'fallback-table', label: 'fallbacks', rows: data.fallbacks, empty: 'nothing fell back to the CPU, or the device keeps no ledger',
  columns: [{ name: 'name', title: 'operator', kind: 'name' }, number('calls', 'calls'), number('bytes', 'bytes of all tensors', showBytes),
    number('ms', 'time', (ms) => (ms ? showTime(ms * 1e6) : ''))],
}));
section('ranks', 'Ranks: Ranks side by side', null, makeTable({
  id: 'rank-table', label: 'ranks', rows: data.lanes, empty: 'no log was read',
  columns: [{ name: 'label', title: 'process' }, number('pid', 'pid'), { name: 'host', title: 'host' }, number('calls', 'calls'), number('last_step', 'last step'),
    number('forward_ns', 'forward', showTime), number('backward_ns', 'backward', showTime), number('seconds', 'seconds', showNumber),
    { ...number('findings', 'findings'), show: (row) => alarm(row.findings) },
    number('records', 'records'), number('lost', 'lost')],
}));
section('environment', 'Environment: Environment and configuration', null, make('h3', { text: 'ran on' }),
  makeFacts(data.environment.map(([key, values]) => [key, values.join('; ')])), make('h3', { text: 'was asked for' }), makeFacts(data.configuration));
section('unseen', 'Not looked at: What was not looked at', 'A report is worth what it leaves out.', makeTable({
  id: 'unseen-table', label: 'not looked at', rows: data.unseen.map(([what, why, how]) => ({ what, why, how })), empty: 'everything was looked at',
  columns: [{ name: 'what', title: 'what' }, { name: 'why', title: 'why' }, { name: 'how', title: 'how to see it', show: (row) => make('code', { text: row.how }) }],
}), data.problems.length ? make('h3', { text: 'what could not be read' }) : null,
data.problems.length ? make('ul', {}, ...data.problems.map((text) => make('li', { text }))) : null);

// Commands to copy, the theme, keys

for (const line of document.querySelectorAll('ol.steps li')) {
  const button = make('button', { type: 'button', text: 'copy' });
  button.addEventListener('click', () => {
    const range = document.createRange();
    range.selectNodeContents(line.querySelector('code'));
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    const done = navigator.clipboard ? navigator.clipboard.writeText(line.querySelector('code').textContent) : Promise.reject();
    done.then(() => { button.textContent = 'copied'; }, () => { button.textContent = 'selected'; });
  });
  line.append(button);
}
const root = document.documentElement;
root.dataset.theme = matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
let before = root.dataset.theme;
function flipTheme(theme) {
  root.dataset.theme = theme || (root.dataset.theme === 'dark' ? 'light' : 'dark');
  dispatchEvent(new Event('themechange'));
}
byId('theme').addEventListener('click', () => flipTheme());
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', (event) => flipTheme(event.matches ? 'dark' : 'light'));
addEventListener('beforeprint', () => { before = root.dataset.theme; flipTheme('light'); });
addEventListener('afterprint', () => flipTheme(before));

const KEYS = [['j, k', 'next section, the one before'], ['/', 'filter the operators'], ['t', 'light or dark'], ['Tab, Enter', 'headings sort, rows open'],
  ['+ - 0 ← →', 'in the timeline: zoom, all, move'], ['?', 'these keys']];
const help = byId('help');
help.append(make('h2', { text: 'Keys' }), makeFacts(KEYS.map(([key, text]) => [make('kbd', { text: key }), text]).map(([key, text]) => [key.textContent, text])),
  make('form', { method: 'dialog' }, make('button', { text: 'close' })));
byId('keys').addEventListener('click', () => help.showModal());
const sections = [...document.querySelectorAll('main > section')];
function here() {
  let at = 0;
  sections.forEach((one, index) => { if (one.getBoundingClientRect().top < 120) at = index; });
  return at;
}
function go(step) {
  sections[Math.max(0, Math.min(sections.length - 1, here() + step))].scrollIntoView();
}
addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) {
    if (event.key === 'Escape') event.target.blur();
    return;
  }
  const acts = { j: () => go(1), k: () => go(-1), t: () => flipTheme(), '?': () => help.showModal(),
    '/': () => { const search = byId('operator-table-filter'); if (search) { event.preventDefault(); search.focus(); } } };
  if (acts[event.key]) acts[event.key]();
});
addEventListener('scroll', () => {
  const id = sections[here()].id;
  for (const link of nav.children) link.classList.toggle('here', link.getAttribute('href') === `#${id}`);
}, { passive: true });
root.dataset.ready = '1';
