// Certified accuracy against radius: one chart for each group of runs.
const cursors = new Map();

function countAt(curve, radius) {
  // Beyond radii[k] and up to radii[k + 1] the count is counts[k]; an input counts at its own radius.
  let low = 0, high = curve.radii.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (curve.radii[middle] < radius) low = middle; else high = middle - 1;
  }
  return curve.counts[low];
}

function chartOf(group) {
  const members = certified.filter((run) => run.group === group);
  const reach = 1.03 * Math.max(...members.map((run) =>
    Math.max(run.curve.radii[run.curve.radii.length - 1], run.curve.ceiling || 0))) || 1;
  return { group, members, reach, box: el("div", { class: "chart" }), legend: el("ul", { class: "legend" }),
    at: el("output", { class: "at" }) };
}

function stepPath(curve, values, x, y) {
  let path = `M${x(0)} ${y(values[0])}`;
  for (let k = 1; k < values.length; k += 1) path += `H${x(curve.radii[k])}V${y(values[k])}`;
  return path;
}

function bandPath(curve, x, y) {
  let path = stepPath(curve, curve.high, x, y);
  const last = curve.radii.length - 1;
  path += `V${y(curve.low[last])}`;
  for (let k = last; k > 0; k -= 1) path += `H${x(curve.radii[k])}V${y(curve.low[k - 1])}`;
  return `${path}H${x(0)}Z`;
}

function drawChart(chart) {
  const width = Math.max(280, chart.box.clientWidth), height = Math.round(Math.min(440, Math.max(270, width * 0.48)));
  const left = 42, right = 10, top = 14, bottom = 40;
  const round = (value) => Math.round(value * 100) / 100;
  const x = (radius) => round(left + (radius / chart.reach) * (width - left - right));
  const y = (share) => round(top + (1 - share) * (height - top - bottom));
  const off = hidden();
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true" });
  for (const share of [0, 0.2, 0.4, 0.6, 0.8, 1]) {
    picture.append(svg("line", { class: "grid", x1: left, x2: width - right, y1: y(share), y2: y(share) }),
      svg("text", { x: left - 7, y: y(share) + 4, "text-anchor": "end" }, `${Math.round(100 * share)}`));
  }
  for (const mark of ticks(chart.reach, width < 480 ? 5 : 10)) {
    picture.append(svg("line", { class: "grid", x1: x(mark), x2: x(mark), y1: top, y2: height - bottom }),
      svg("text", { x: x(mark), y: height - bottom + 17, "text-anchor": "middle" }, `${mark}`));
  }
  picture.append(svg("text", { class: "axis", x: (left + width - right) / 2, y: height - 5, "text-anchor": "middle" },
    `${data.norm} radius`));
  picture.append(svg("text", { class: "axis", x: 12, y: (top + height - bottom) / 2, "text-anchor": "middle",
    transform: `rotate(-90 12 ${(top + height - bottom) / 2})` }, "certified accuracy (%)"));
  const shown = chart.members.filter((run) => !off.has(run.id));
  if (state.band) for (const run of shown.filter((one) => one.curve.low)) {
    picture.append(svg("path", { class: "band", d: bandPath(run.curve, x, y), fill: look(run).stroke }));
  }
  const marked = new Set();
  for (const run of shown) {
    const ceiling = run.curve.ceiling;
    if (ceiling === null || marked.has(ceiling)) continue;
    marked.add(ceiling);
    picture.append(svg("line", { class: "ceiling", x1: x(ceiling), x2: x(ceiling), y1: top, y2: height - bottom,
      stroke: look(run).stroke }));
  }
  for (const run of shown) {
    picture.append(svg("path", { class: "curve", "data-run": run.id, ...look(run),
      d: stepPath(run.curve, run.curve.counts.map((count) => count / run.inputs), x, y) }));
  }
  const line = svg("line", { class: "cursor", y1: top, y2: height - bottom });
  picture.append(line);
  chart.box.replaceChildren(picture);
  chart.move = (radius) => {
    const kept = Math.min(chart.reach, Math.max(0, radius));
    cursors.set(chart.group, kept);
    line.setAttribute("x1", x(kept));
    line.setAttribute("x2", x(kept));
    readOut(chart, kept);
  };
  chart.radiusAt = (clientX) => {
    const bounds = chart.box.getBoundingClientRect();
    return ((clientX - bounds.left - left) / (width - left - right)) * chart.reach;
  };
  chart.move(cursors.get(chart.group) ?? chart.group.headlineRadius);
}

function readOut(chart, radius) {
  const shownRadius = radius.toFixed(3);
  chart.at.textContent = `at radius ${shownRadius}`;
  const off = hidden();
  const parts = [];
  for (const run of chart.members) {
    const value = `${percentDown(countAt(run.curve, Number(shownRadius)), run.inputs)} %`;
    chart.values.get(run).textContent = value;
    if (!off.has(run.id)) parts.push(`${run.name} ${value}`);
  }
  chart.box.setAttribute("aria-valuenow", shownRadius);
  chart.box.setAttribute("aria-valuetext", `radius ${shownRadius}: ${parts.slice(0, 6).join(", ")}`);
}

function fillLegend(chart) {
  chart.values = new Map();
  const off = hidden();
  chart.legend.replaceChildren(...chart.members.map((run) => {
    const value = el("b", {});
    chart.values.set(run, value);
    const swatch = svg("svg", { width: 30, height: 10, "aria-hidden": "true" },
      svg("line", { class: "curve", x1: 0, x2: 30, y1: 5, y2: 5, ...look(run) }));
    return el("li", {}, el("button", { type: "button", "data-legend": run.id, "aria-pressed": String(!off.has(run.id)),
      onclick: () => {
        const now = hidden();
        if (!now.delete(run.id)) now.add(run.id);
        showOnly(now);
      } }, swatch, el("span", {}, run.name), value));
  }));
}

function showOnly(off) {
  change({ off: [...off].sort((a, b) => a - b).join(".") });
  redrawCharts();
}

const charts = [];
function redrawCharts() {
  const off = hidden();
  for (const chart of charts) {
    for (const button of chart.legend.querySelectorAll("button")) {
      button.setAttribute("aria-pressed", String(!off.has(Number(button.dataset.legend))));
    }
    drawChart(chart);
  }
  for (const box of document.querySelectorAll("input.band-toggle")) box.checked = Boolean(state.band);
}

function curvesOf(group) {
  const chart = chartOf(group);
  if (!chart.members.length) return el("p", { class: "note" }, "No curve: nothing has been certified yet.");
  charts.push(chart);
  fillLegend(chart);
  const follow = (event) => chart.move(chart.radiusAt(event.clientX));
  fill(chart.box, { tabindex: 0, role: "slider", "aria-label": `Certified accuracy of ${group.name} at a radius`,
    "aria-valuemin": 0, "aria-valuemax": chart.reach.toFixed(3),
    onpointermove: follow, onpointerdown: follow,
    onkeydown: (event) => {
      const now = cursors.get(group), step = chart.reach / (event.shiftKey ? 20 : 200);
      const to = { ArrowLeft: now - step, ArrowDown: now - step, ArrowRight: now + step, ArrowUp: now + step,
        Home: 0, End: chart.reach }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      chart.move(to);
    } }, []);
  const own = chart.members.map((run) => run.id);
  const banded = chart.members.some((run) => run.curve.low);
  const band = el("label", { class: "check" }, el("input", { type: "checkbox", class: "band-toggle", checked: Boolean(state.band),
    onchange: (event) => { change({ band: event.target.checked ? "1" : "" }); redrawCharts(); } }), "95 % band");
  const all = el("button", { type: "button", class: "quiet", onclick: () =>
    showOnly(new Set([...hidden()].filter((id) => !own.includes(id)))) }, "Show all");
  const none = el("button", { type: "button", class: "quiet", onclick: () =>
    showOnly(new Set([...hidden(), ...own])) }, "Hide all");
  const controls = el("div", { class: "controls" }, chart.at, ...(banded ? [band] : []), ...(own.length > 1 ? [all, none] : []));
  const ceiling = chart.members.some((run) => run.curve.ceiling !== null)
    ? "Dotted lines mark the largest radius that σ, n and α allow. " : "";
  const merged = chart.members.some((run) => run.curve.jumps >= run.curve.radii.length)
    ? "Curves with more than 500 jumps are drawn with fewer, never above the true curve. " : "";
  return el("figure", {}, chart.box, controls, chart.legend, el("figcaption", { class: "note" },
    `Share of all inputs that are right and certified at the radius or more. Move over the chart, or use the arrow keys, to read values; press a name to hide it. ${ceiling}${merged}${banded ? "The band holds for one radius at a time." : ""}`));
}
