// Every call of one step, drawn on a canvas: wheel or + and - zoom, drag or the arrows move, 0 shows all.

function makeTimeline(spans, texts) {
  if (!spans.length) return make('p', { class: 'none', text: 'no times were recorded: run with --tool time' });
  const choice = make('select', { 'aria-label': 'step' });
  spans.forEach((one, index) => choice.append(make('option', { value: index, text: one.label })));
  const canvas = make('canvas', { tabindex: 0, role: 'img', 'aria-label': 'calls of one step; arrows move, + and - zoom' });
  const note = make('span', { class: 'count' });
  const view = { from: 0, to: 1 };
  const ROW = 22;
  let step = spans[0];
  let rows = [];
  let end = 1;

  function choose() {
    step = spans[Number(choice.value)];
    end = Math.max(1, ...step.begin.map((begin, index) => begin + step.ns[index]));
    const lanes = new Map();
    rows = step.begin.map((begin, index) => {
      const lane = `${step.thread[index]} ${step.backward[index]}`;
      if (!lanes.has(lane)) lanes.set(lane, []);
      const ends = lanes.get(lane);
      let row = ends.findIndex((one) => one <= begin);
      if (row < 0) row = ends.length < 6 ? ends.push(0) - 1 : 5;
      ends[row] = begin + step.ns[index];
      return [lane, row];
    });
    let next = 0;
    const firsts = new Map();
    for (const [lane, ends] of lanes) { firsts.set(lane, next); next += ends.length; }
    rows = rows.map(([lane, row]) => firsts.get(lane) + row);
    canvas.style.height = `${next * ROW + 22}px`;
    view.from = 0;
    view.to = end;
    note.textContent = `${grouped.format(step.begin.length)} calls, ${showTime(end)}`;
    paint();
  }
  const style = getComputedStyle(document.documentElement);
  function paint() {
    const ratio = devicePixelRatio || 1;
    const width = canvas.clientWidth;
    if (!width) return;
    canvas.width = width * ratio;
    canvas.height = canvas.clientHeight * ratio;
    const pen = canvas.getContext('2d');
    pen.scale(ratio, ratio);
    const scale = width / (view.to - view.from);
    const colours = Array.from({ length: 10 }, (_, index) => style.getPropertyValue(`--c${index}`));
    pen.font = '11px system-ui, sans-serif';
    pen.textBaseline = 'middle';
    for (let index = 0; index < step.begin.length; index++) {
      const x = (step.begin[index] - view.from) * scale;
      const length = Math.max(step.ns[index] * scale, 0.7);
      if (x + length < 0 || x > width) continue;
      const y = rows[index] * ROW + 2;
      pen.globalAlpha = step.backward[index] ? 0.72 : 1;
      pen.fillStyle = colours[getHue(texts[step.name[index]])];
      pen.fillRect(x, y, length > 3 ? length - 0.6 : length, ROW - 4);
      if (length > 46) {
        pen.globalAlpha = 1;
        pen.fillStyle = '#10131a';
        pen.save();
        pen.beginPath();
        pen.rect(x, y, length - 4, ROW);
        pen.clip();
        pen.fillText(shorten(texts[step.name[index]]), Math.max(x, 0) + 4, y + (ROW - 4) / 2);
        pen.restore();
      }
    }
    pen.globalAlpha = 1;
    pen.fillStyle = style.getPropertyValue('--soft');
    for (const tick of pickTicks(view.from, view.to, 6)) {
      pen.fillText(tick ? showTime(tick) : '0', Math.min((tick - view.from) * scale + 2, width - 50), canvas.clientHeight - 9);
    }
  }
  function zoom(factor, at) {
    const middle = view.from + (view.to - view.from) * at;
    const from = Math.max(0, middle - (middle - view.from) * factor);
    const to = Math.min(end, middle + (view.to - middle) * factor);
    if (to - from > 100) { view.from = from; view.to = to; }
    paint();
  }
  function move(share) {
    const length = view.to - view.from;
    view.from = Math.max(0, Math.min(end - length, view.from + share * length));
    view.to = view.from + length;
    paint();
  }
  function find(event) {
    const box = canvas.getBoundingClientRect();
    const at = view.from + ((event.clientX - box.left) / box.width) * (view.to - view.from);
    const row = Math.floor((event.clientY - box.top) / ROW);
    const slack = (view.to - view.from) / box.width;
    return step.begin.findIndex((begin, index) => rows[index] === row && begin - slack <= at && at <= begin + step.ns[index] + slack);
  }
  canvas.addEventListener('wheel', (event) => {
    if (!event.ctrlKey && document.activeElement !== canvas) return;
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, event.offsetX / canvas.clientWidth);
  }, { passive: false });
  canvas.addEventListener('pointermove', (event) => {
    if (event.buttons) { move(-event.movementX / canvas.clientWidth); return; }
    const index = find(event);
    tell(event, index < 0 ? '' : [
      texts[step.name[index]] + (step.backward[index] ? ', backward' : ''), showTime(step.ns[index]), texts[step.module[index]],
    ].filter(Boolean).join('\n'));
  });
  canvas.addEventListener('pointerleave', () => tell(null, ''));
  canvas.addEventListener('keydown', (event) => {
    const acts = { ArrowLeft: () => move(-0.2), ArrowRight: () => move(0.2), '+': () => zoom(0.7, 0.5), '=': () => zoom(0.7, 0.5),
      '-': () => zoom(1.4, 0.5), 0: () => { view.from = 0; view.to = end; paint(); } };
    if (acts[event.key]) { event.preventDefault(); acts[event.key](); }
  });
  choice.addEventListener('change', choose);
  new ResizeObserver(paint).observe(canvas);
  addEventListener('themechange', paint);
  choice.value = Math.min(1, spans.length - 1);
  requestAnimationFrame(choose);
  return make('div', {}, make('div', { class: 'tools' }, choice, note), canvas);
}
