'use strict';
// One file, no build, nothing from elsewhere. All texts are set as text, never as markup.
const at = id => document.getElementById(id);
const state = { plan: null, shape: [], pixels: null, cursor: [0, 0], pen: null, asking: null, asked: null, direction: null, radius: 0 };

function headers(kind) {
  const key = at('key').value.trim();
  return { ...(kind ? { 'Content-Type': kind } : {}), ...(key ? { Authorization: 'Bearer ' + key } : {}) };
}

// Rounded down: a radius that is shown is certified, too.
const down = value => value > 0 ? (Math.floor(value * 1e4) / 1e4).toString() : '0';
const name = (label, number) => label === null || label === undefined ? String(number) : label;
const isPicture = () => state.shape.length === 3 && (state.shape[0] === 1 || state.shape[0] === 3);
const size = () => state.shape.reduce((a, b) => a * b, 1);
const norm = values => state.plan.plan.norm === 'l1'
  ? values.reduce((sum, v) => sum + Math.abs(v), 0) : Math.sqrt(values.reduce((sum, v) => sum + v * v, 0));

async function begin() {
  const answer = await fetch('v1/plan', { headers: headers() });
  at('lock').hidden = answer.status !== 401;
  if (!answer.ok) { at('about').textContent = answer.status === 401 ? 'This server asks for a key.' : `The server doesn’t answer (${answer.status}): load the page again later.`; return; }
  const plan = state.plan = await answer.json();
  state.shape = plan.model.input_shape;
  at('about').textContent = `${plan.model.name}, smoothed with ${plan.plan.noise} noise of σ = ${plan.plan.sigma}: a class, and the radius inside which nothing can change it.`;
  at('promise').textContent = plan.promise + ' ' + plan.randomness;
  at('hash').textContent = `Plan ${plan.sha256}`;
  at('ceiling').textContent = `${plan.plan.n} votes allow ${down(plan.largest_radius)} at most (${plan.plan.norm === 'l1' ? 'ℓ1' : 'ℓ2'}).`;
  at('radius').max = plan.largest_radius;
  at('votes').max = plan.plan.n;
  at('go').disabled = false;
  at('pictures').hidden = !isPicture();
  at('numbers').hidden = isPicture();
  at('count').textContent = size();
  clear();
}

// Pictures: numbers in [0, 1], channel by channel, drawn as squares.
function paint(canvas, values) {
  const [channels, height, width] = state.shape;
  canvas.width = width; canvas.height = height;
  const context = canvas.getContext('2d'), image = context.createImageData(width, height), area = width * height;
  for (let i = 0; i < area; i++) {
    for (let c = 0; c < 3; c++) image.data[4 * i + c] = 255 * Math.min(1, Math.max(0, values[(channels === 3 ? c * area : 0) + i]));
    image.data[4 * i + 3] = 255;
  }
  context.putImageData(image, 0, 0);
}

function show() {
  paint(at('drawing'), state.pixels);
  if (document.activeElement === at('drawing')) {
    const context = at('drawing').getContext('2d');
    context.fillStyle = 'rgba(255, 96, 96, .8)';
    context.fillRect(state.cursor[0], state.cursor[1], 1, 1);
  }
  const drawn = state.pixels.filter(v => v > 0).length;
  at('drawing').setAttribute('aria-label', drawn ? `Drawing: ${drawn} of ${state.pixels.length} numbers above 0` : 'Drawing: empty');
}

function touch(x, y, value, width) {
  const [channels, height, columns] = state.shape, area = height * columns;
  for (let v = 0; v < height; v++) for (let u = 0; u < columns; u++) {
    const far = Math.hypot(u + .5 - x, v + .5 - y), ink = Math.min(1, Math.max(0, width + .5 - far));
    if (ink > 0) for (let c = 0; c < channels; c++) {
      const place = c * area + v * columns + u;
      state.pixels[place] = value ? Math.max(state.pixels[place], Math.round(255 * ink) / 255) : 0;
    }
  }
}

// From where the pen was last: events of a quick stroke are far apart.
function draw(event) {
  if (!(event.buttons & 1)) { state.pen = null; return; }
  const box = at('drawing').getBoundingClientRect(), [, height, width] = state.shape;
  const brush = Math.max(.8, Math.min(height, width) / 16);
  for (const one of (event.getCoalescedEvents ? event.getCoalescedEvents() : []).concat(event)) {
    const to = [(one.clientX - box.left) / box.width * width, (one.clientY - box.top) / box.height * height], from = state.pen || to;
    const steps = Math.max(1, Math.ceil(Math.hypot(to[0] - from[0], to[1] - from[1]) / brush));
    for (let i = 1; i <= steps; i++) touch(from[0] + (to[0] - from[0]) * i / steps, from[1] + (to[1] - from[1]) * i / steps, 1, brush);
    state.pen = to;
  }
  renew();
  show();
  event.preventDefault();
}

function keyed(event) {
  const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }, [, height, width] = state.shape;
  const [u, v] = state.cursor;
  if (moves[event.key]) state.cursor = [Math.min(width - 1, Math.max(0, u + moves[event.key][0])), Math.min(height - 1, Math.max(0, v + moves[event.key][1]))];
  else if (event.key === ' ') { renew(); touch(u + .5, v + .5, 1, .5); }
  else if (event.key === 'Backspace') { renew(); touch(u + .5, v + .5, 0, .5); }
  else return;
  event.preventDefault();
  show();
}

async function take(file) {
  if (!file || !state.plan || !isPicture()) return;
  let bitmap;
  try { bitmap = await createImageBitmap(file); } catch { say('That file is no picture that this browser can read.'); return; }
  const [channels, height, width] = state.shape, canvas = document.createElement('canvas');
  canvas.width = width; canvas.height = height;
  const context = canvas.getContext('2d', { willReadFrequently: true });
  context.imageSmoothingQuality = 'high';
  context.drawImage(bitmap, 0, 0, width, height);
  const data = context.getImageData(0, 0, width, height).data, area = width * height;
  renew();
  for (let i = 0; i < area; i++) {
    const rgb = [data[4 * i], data[4 * i + 1], data[4 * i + 2]];
    if (channels === 3) rgb.forEach((value, c) => { state.pixels[c * area + i] = value / 255; });
    else state.pixels[i] = Math.round(.299 * rgb[0] + .587 * rgb[1] + .114 * rgb[2]) / 255;
  }
  show();
}

// The input is another one: what was said of the last isn't about it.
function renew() {
  state.radius = 0;
  stop();
  at('verdict').textContent = 'Nothing asked yet.';
  at('seen').hidden = at('moved').hidden = true;
  progress({ votes: 0, radius: 0, counts: [], candidate: null });
}

function clear() {
  renew();
  state.pixels = new Array(size()).fill(0);
  at('row').value = '';
  at('file').value = '';
  if (isPicture()) show();
}

function input() {
  if (isPicture()) return state.pixels.slice();
  const values = at('row').value.split(/[\s,;]+/).filter(Boolean).map(Number);
  if (values.length !== size() || !values.every(Number.isFinite)) {
    say(`This model takes ${size()} numbers; there are ${values.length}${values.every(Number.isFinite) ? '' : ', not all of them numbers'}.`);
    return null;
  }
  return values;
}

function nested(values, shape) {
  if (shape.length === 1) return values;
  const step = values.length / shape[0];
  return Array.from({ length: shape[0] }, (_, i) => nested(values.slice(i * step, (i + 1) * step), shape.slice(1)));
}

function say(text) { at('verdict').textContent = text; at('told').textContent = text; }

function verdict(text, strong, rest) {
  const bold = document.createElement('strong');
  bold.textContent = strong;
  at('verdict').replaceChildren(text, bold, rest);
}

function progress(now) {
  at('radius').value = now.radius;
  at('radius-text').textContent = down(now.radius);
  at('votes').value = now.votes;
  at('votes-text').textContent = now.votes;
  const labels = state.plan && state.plan.model.labels, rows = at('shares').tBodies[0];
  const ranked = now.counts.map((count, c) => [count, c]).filter(([count]) => count).sort((a, b) => b[0] - a[0]).slice(0, 4);
  rows.replaceChildren(...ranked.map(([count, c]) => {
    const row = document.createElement('tr');
    const note = c === now.candidate ? ' (being certified)' : c === now.runner_up ? ' (second)' : '';
    for (const text of [name(labels && labels[c], c) + note, count, (100 * count / now.votes).toFixed(1) + ' %']) {
      const cell = document.createElement('td');
      cell.textContent = text;
      row.append(cell);
    }
    return row;
  }));
}

function tell(now, final) {
  progress(now);
  const cls = name(now.candidate_label, now.candidate), second = now.runner_up === null ? '' : ` Second: ${name(now.runner_up_label, now.runner_up)}.`;
  const count = `${now.votes} votes`;
  if (!now.abstained) verdict('It is ', name(now.label, now.predicted), `, and stays so for every change smaller than ${down(now.radius)}.${second}`);
  else if (final) verdict('', 'Can’t tell.', ` ${count} don’t separate ${cls} from the rest well enough to promise anything.${second}`);
  else verdict('Not certain yet: perhaps ', cls, `.${second}`);
  state.radius = now.abstained ? 0 : now.radius;
  const time = Date.now();
  if (final || time - (state.told || 0) > 3000) {
    state.told = time;
    at('told').textContent = (final ? 'Answer: ' : '') + at('verdict').textContent + (final ? ` After ${count}.` : '');
  }
}

async function go() {
  const values = input();
  if (!values) return;
  renew();
  const asking = state.asking = new AbortController();
  state.asked = values;
  state.direction = null;
  at('stop').disabled = false;
  say('Voting …');
  const lost = 'The connection was lost.';
  try {
    const answer = await fetch('v1/certify/stream?copies=4', {
      method: 'POST', headers: headers('application/json'), signal: asking.signal,
      body: JSON.stringify({ inputs: [nested(values, state.shape)] }),
    });
    if (!answer.ok) { say(`Not answered: ${(await answer.json()).error}${answer.status === 429 ? ' Try again in ' + answer.headers.get('Retry-After') + ' s.' : ''}`); return; }
    for await (const [kind, data] of events(answer.body)) {
      if (state.asking !== asking) return;
      if (kind === 'copies') copies(data.inputs);
      else if (kind === 'failed') { say(`Not answered: ${data.error}`); return; }
      else { tell(data, kind === 'answer'); if (kind === 'answer') { moved(); return; } }
    }
    broken(lost);
  } catch (error) {
    if (error.name !== 'AbortError') broken(lost);
  } finally {
    if (state.asking === asking) { state.asking = null; at('stop').disabled = true; }
  }
}

// What was shown last holds, and is shown on.
function broken(words) {
  if (state.radius > 0) { at('verdict').append(` ${words}`); at('told').textContent = words; moved(); }
  else say(words);
}

async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    for (let end; (end = text.indexOf('\n\n')) >= 0; text = text.slice(end + 2)) {
      const lines = text.slice(0, end).split('\n'), found = key => (lines.find(line => line.startsWith(key)) || '').slice(key.length);
      if (found('event: ')) yield [found('event: '), JSON.parse(found('data: '))];
    }
  }
}

function stop() {
  if (!state.asking) return;
  state.asking.abort();
  state.asking = null;
  at('stop').disabled = true;
  if (state.radius > 0) moved();
}

const row = values => values.map(value => Number(value.toPrecision(4))).join(', ');

function copies(inputs) {
  at('seen').hidden = false;
  at('copies').replaceChildren(...inputs.map((one, place) => {
    if (!isPicture()) {
      const line = document.createElement('p');
      line.className = 'numbers';
      line.textContent = row(one.flat(Infinity));
      return line;
    }
    const canvas = document.createElement('canvas');
    canvas.setAttribute('role', 'img');
    canvas.setAttribute('aria-label', `Noisy version ${place + 1}`);
    paint(canvas, one.flat(Infinity));
    return canvas;
  }));
}

// A change of a given size in a random direction: an attacker chooses better, and inside the radius in vain.
function moved() {
  at('moved').hidden = false;
  at('changed').hidden = !isPicture();
  at('changed-row').hidden = isPicture();
  at('size').max = state.plan.largest_radius;
  at('size').value = state.radius;
  change();
}

function change() {
  if (!state.direction) {
    const drawn = state.asked.map(() => Math.sqrt(-2 * Math.log(1 - Math.random())) * Math.cos(2 * Math.PI * Math.random())), length = norm(drawn);
    state.direction = drawn.map(v => v / length);
  }
  const far = Number(at('size').value);
  at('size-text').textContent = down(far);
  at('size-words').textContent = state.radius > 0 && Math.abs(far - state.radius) <= state.radius / 1000
    ? 'The radius: every smaller change leaves the class as it is.'
    : far < state.radius ? 'Inside the radius: no change of this size, in whatever direction, changes the class.'
    : 'Outside the radius: nothing is promised.';
  const changed = state.asked.map((v, i) => v + far * state.direction[i]);
  if (isPicture()) paint(at('changed'), changed);
  else at('changed-row').textContent = row(changed);
}

at('drawing').addEventListener('pointerdown', event => { state.pen = null; at('drawing').setPointerCapture(event.pointerId); draw(event); });
at('drawing').addEventListener('pointermove', draw);
at('drawing').addEventListener('keydown', keyed);
at('drawing').addEventListener('focus', show);
at('drawing').addEventListener('blur', show);
// Anywhere: a browser would leave the page for a picture that falls beside the drawing.
window.addEventListener('dragover', event => event.preventDefault());
window.addEventListener('drop', event => { event.preventDefault(); take(event.dataTransfer.files[0]); });
at('row').addEventListener('input', renew);
at('file').addEventListener('change', () => take(at('file').files[0]));
at('go').addEventListener('click', go);
at('stop').addEventListener('click', stop);
at('clear').addEventListener('click', clear);
at('size').addEventListener('input', change);
at('turn').addEventListener('click', () => { state.direction = null; change(); });
at('lock').addEventListener('submit', event => { event.preventDefault(); begin(); });
begin().catch(() => { at('about').textContent = 'The server can’t be reached.'; });
