// Lines over a number, stacked bars over time, and the flame view of modules.

const CHART = { width: 1080, height: 230, left: 62, right: 10, top: 10, bottom: 26 };

function pickTicks(low, high, count) {
  const step0 = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(step0));
  const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= step0);
  const ticks = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-6; at += step) ticks.push(Math.abs(at) < step * 1e-6 ? 0 : at);
  return ticks;
}

/// series: [{ name, points: [[x, y]], colour, dots }]; options: { log, binary, showX, showY, labelX }.
function makeLines(series, options) {
  const box = CHART;
  const state = new Set();
  const root = make('div');
  const frame = draw('svg', { viewBox: `0 0 ${box.width} ${box.height}`, role: 'img', 'aria-label': options.label });
  const legend = make('div', { class: 'legend' });
  series.forEach((one, index) => {
    const button = make('button', { type: 'button', 'aria-pressed': 'true', on: { click: () => flip(button, index) } });
    button.append(make('i', { style: { background: one.colour } }), one.name);
    legend.append(button);
  });
  function flip(button, index) {
    if (!state.delete(index)) state.add(index);
    button.setAttribute('aria-pressed', String(!state.has(index)));
    paint();
  }
  function paint() {
    const shown = series.filter((one, index) => !state.has(index));
    const points = shown.flatMap((one) => one.points).filter(([, y]) => isNumber(y) && (!options.log || y > 0));
    frame.replaceChildren();
    if (!points.length) return;
    const high = Math.max(...points.map(([x]) => x));
    const low = Math.min(...points.map(([x]) => x));
    const change = options.log ? Math.log10 : (y) => y;
    const ys = points.map(([, y]) => change(y));
    let [bottom, top] = [options.log ? Math.floor(Math.min(...ys)) : 0, Math.max(...ys)];
    if (options.log) top = Math.max(Math.ceil(top), bottom + 1);
    if (top === bottom) top = bottom + 1;
    const unit = options.binary ? 2 ** (10 * Math.floor(Math.log2(Math.max(top, 1)) / 10)) : 1;
    const toX = (x) => box.left + ((x - low) / (high - low || 1)) * (box.width - box.left - box.right);
    const toY = (y) => box.height - box.bottom - ((change(y) - bottom) / (top - bottom)) * (box.height - box.top - box.bottom);
    const back = (tick) => (options.log ? 10 ** tick : tick);
    const ticks = options.log ? pickTicks(bottom, top, 5).filter(Number.isInteger) : pickTicks(bottom / unit, top / unit, 4).map((tick) => tick * unit);
    for (const tick of ticks) {
      const y = toY(back(tick));
      frame.append(draw('line', { class: 'grid', x1: box.left, x2: box.width - box.right, y1: y, y2: y }));
      frame.append(draw('text', { x: box.left - 8, y: y + 4, 'text-anchor': 'end' }, options.showY(back(tick))));
    }
    for (const tick of pickTicks(low, high, 8)) {
      frame.append(draw('text', { x: toX(tick), y: box.height - 8, 'text-anchor': 'middle' }, options.showX(tick)));
    }
    frame.append(draw('line', { class: 'axis', x1: box.left, x2: box.width - box.right, y1: box.height - box.bottom, y2: box.height - box.bottom }));
    for (const one of shown) {
      const good = one.points.filter(([, y]) => isNumber(y) && (!options.log || y > 0));
      const path = good.map(([x, y]) => `${toX(x).toFixed(1)},${toY(y).toFixed(1)}`).join(' ');
      if (!one.dots) frame.append(draw('polyline', { points: path, fill: 'none', stroke: one.colour, 'stroke-width': 1.8, 'stroke-linejoin': 'round', 'stroke-dasharray': one.dash || 'none' }));
      if (one.dots || good.length < 40) {
        for (const [x, y] of good) {
          const dot = draw('circle', { cx: toX(x), cy: toY(y), r: one.dots ? 3.4 : 2.2, fill: one.colour });
          frame.append(explain(dot, `${one.name}\n${options.labelX} ${options.showX(x)}: ${options.showY(y)}`));
        }
      }
    }
  }
  paint();
  root.append(frame, legend);
  return root;
}

/// Stacked bars: operators over time.
function makeStack(timeline) {
  const box = { ...CHART, height: 210 };
  const places = timeline.operators.flatMap((one) => one.bins.map(([place]) => place));
  if (!places.length) return make('p', { class: 'none', text: 'no times were recorded: run with --tool time' });
  const [first, last] = [Math.min(...places), Math.max(...places)];
  const frame = draw('svg', { viewBox: `0 0 ${box.width} ${box.height}`, role: 'img', 'aria-label': 'operators over time' });
  const width = (box.width - box.left - box.right) / (last - first + 1);
  const sums = new Map();
  for (const one of timeline.operators) for (const [place, ns] of one.bins) sums.set(place, (sums.get(place) || 0) + ns);
  const top = Math.max(...sums.values()) / timeline.width_ns;
  const scale = (box.height - box.top - box.bottom) / top;
  const floor = box.height - box.bottom;
  for (const tick of pickTicks(0, top, 4)) {
    const y = floor - tick * scale;
    frame.append(draw('line', { class: 'grid', x1: box.left, x2: box.width - box.right, y1: y, y2: y }));
    frame.append(draw('text', { x: box.left - 8, y: y + 4, 'text-anchor': 'end' }, showShare(tick)));
  }
  const heights = new Map();
  timeline.operators.forEach((one, index) => {
    for (const [place, ns] of one.bins) {
      const height = (ns / timeline.width_ns) * scale;
      const below = heights.get(place) || 0;
      heights.set(place, below + height);
      const bar = draw('rect', {
        x: box.left + (place - first) * width, y: floor - below - height, width: Math.max(width - (width > 4 ? 1 : 0), 0.6),
        height, fill: colour(index),
      });
      frame.append(explain(bar, `${one.name}\n${showTime(ns)} of ${showTime(timeline.width_ns)}, at ${showTime(place * timeline.width_ns)}`));
    }
  });
  for (const tick of pickTicks(first * timeline.width_ns, (last + 1) * timeline.width_ns, 8)) {
    const x = box.left + (tick / timeline.width_ns - first) * width;
    frame.append(draw('text', { x, y: box.height - 8, 'text-anchor': 'middle' }, tick ? showTime(tick) : '0'));
  }
  const legend = make('div', { class: 'legend' });
  timeline.operators.forEach((one, index) => {
    legend.append(make('span', {}, make('i', { style: { background: colour(index) } }), shorten(one.name)));
  });
  return make('div', {}, frame, legend);
}

/// One strip per process: how busy its device was.
function makeStrips(timeline) {
  const lanes = timeline.lanes;
  if (lanes.length < 2) return null;
  const all = lanes.flatMap((lane) => [...lane.forward, ...lane.backward].map(([place]) => place));
  const [first, last] = [Math.min(...all), Math.max(...all)];
  const grid = make('div', { class: 'lanes' });
  for (const lane of lanes) {
    const sums = new Map();
    for (const [place, ns] of [...lane.forward, ...lane.backward]) sums.set(place, (sums.get(place) || 0) + ns);
    const strip = draw('svg', { viewBox: `0 0 ${last - first + 1} 1`, preserveAspectRatio: 'none', class: 'strip', role: 'img', 'aria-label': lane.label });
    for (const [place, ns] of sums) {
      const share = Math.min(1, ns / timeline.width_ns);
      const bar = draw('rect', { x: place - first, y: 0, width: 1.02, height: 1, fill: colour(0), 'fill-opacity': 0.15 + 0.85 * share });
      strip.append(explain(bar, `${lane.label}: ${showShare(share)} busy`));
    }
    grid.append(make('span', { text: lane.label }), strip);
  }
  return grid;
}

/// Modules as a flame: a click goes into one, the top row comes out again.
function makeFlame(root) {
  if (!root.t) return make('p', { class: 'none', text: 'no times were recorded: run with --tool time' });
  const place = make('div', { class: 'flame' });
  const height = 24;
  const path = [root];
  function pick(node) {
    return node.o ? colour(getHue(node.n)) : 'var(--c9)';
  }
  function describe(node) {
    const own = node.o ? `\n${showCount(node.c)} calls, ${showTime(node.b)} of it backward` : '';
    return `${node.n}\n${showTime(node.t)}, ${showShare(node.t / root.t)} of all${own}`;
  }
  function paint() {
    place.replaceChildren();
    let depth = 0;
    path.forEach((node, index) => put(node, 0, 1, index, () => { path.length = index + 1; paint(); }));
    function put(node, left, share, row, act) {
      depth = Math.max(depth, row);
      const box = make('button', {
        type: 'button', text: node.o ? shorten(node.n) : node.n, 'aria-label': describe(node), on: { click: act },
        style: { left: `${100 * left}%`, width: `${100 * share}%`, top: `${row * height}px`, background: pick(node) },
      });
      place.append(explain(box, describe(node)));
    }
    function walk(node, left, share, row, above) {
      let at = left;
      for (const child of node.k || []) {
        const part = (share * child.t) / (node.t || 1);
        if (part < 0.002) break;
        const way = [...above, child];
        put(child, at, part, row, () => { path.push(...way); if (!child.k) path.pop(); paint(); });
        walk(child, at, part, row + 1, way);
        at += part;
      }
    }
    walk(path[path.length - 1], 0, 1, path.length, []);
    place.style.height = `${(depth + 1) * height}px`;
  }
  paint();
  return place;
}
