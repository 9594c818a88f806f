// Elements and texts. Nothing here ever reads markup: what a log says goes into the page as text.

function make(tag, options, ...children) {
  const { text, style, on, ...attributes } = options || {};
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? '' : value);
  }
  if (text !== undefined) element.textContent = text;
  for (const [name, value] of Object.entries(style || {})) element.style.setProperty(name, value);
  for (const [name, call] of Object.entries(on || {})) element.addEventListener(name, call);
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

function draw(tag, attributes, text) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

const byId = (id) => document.getElementById(id);
const isNumber = (value) => typeof value === 'number';
const grouped = new Intl.NumberFormat('en');

function showCount(value) {
  return isNumber(value) ? grouped.format(value) : value === null || value === undefined ? '' : String(value);
}

function showNumber(value, digits = 3) {
  if (!isNumber(value)) return value === null || value === undefined ? '' : String(value);
  const size = Math.abs(value);
  if (size && (size < 1e-3 || size >= 1e6)) return value.toExponential(digits - 1).replace('e+', 'e');
  return grouped.format(Number(value.toPrecision(digits)));
}

function showTime(ns) {
  if (!isNumber(ns)) return '';
  const units = [['s', 1e9], ['ms', 1e6], ['µs', 1e3], ['ns', 1]];
  const [unit, size] = units.find(([, one]) => Math.abs(ns) >= one) || units[3];
  return `${showNumber(ns / size)} ${unit}`;
}

function showBytes(bytes) {
  if (!isNumber(bytes)) return '';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let at = 0;
  while (Math.abs(bytes) >= 1024 && at < 4) { bytes /= 1024; at++; }
  return `${showNumber(bytes)} ${units[at]}`;
}

const showShare = (share) => (isNumber(share) ? `${showNumber(100 * share, 2)} %` : '');
const colour = (index) => `var(--c${Math.min(index, 9)})`;

/// The part of an operator's name that tells it from others.
const shorten = (name) => String(name).replace(/^torch\.(nn\.functional\.|_C\._nn\.)?/, '');

// One line of help beside the pointer.
const tip = byId('tip');
function tell(event, text) {
  tip.hidden = !text;
  if (!text) return;
  tip.textContent = text;
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(8, Math.min(event.clientX + 14, innerWidth - box.width - 8))}px`;
  tip.style.top = `${event.clientY + 20 + box.height > innerHeight ? event.clientY - box.height - 10 : event.clientY + 18}px`;
}
function explain(element, text) {
  element.addEventListener('pointermove', (event) => tell(event, typeof text === 'function' ? text(event) : text));
  element.addEventListener('pointerleave', () => tell(null, ''));
  return element;
}
