// Elements are made of nodes and text only: no string from the data is ever parsed as HTML.
const data = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children) if (child !== null && child !== undefined) node.append(child);
  return node;
}

function el(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function place(id, ...children) {
  document.getElementById(id).replaceChildren(...children);
}

// Runs of all groups in one row; a run's number in it is its name in the address.
const runs = data.groups.flatMap((group, g) =>
  group.runs.map((run, k) => ({ ...run, group, groupNumber: g, place: k })));
runs.forEach((run, id) => { run.id = id; });
const certified = runs.filter((run) => run.inputs > 0);

const DASHES = ["", "9 3", "9 3 2 3", "5 3", "14 3 4 3"];
function look(run) {
  return { stroke: `var(--c${run.place % 7})`, "stroke-dasharray": DASHES[run.place % 5] };
}

const DEFAULTS = { run: "0", filter: "all", sort: "radius", down: "", q: "", a: "", b: "", r: "", off: "", band: "", theme: "" };
const state = { ...DEFAULTS };

function readAddress() {
  // A place on the page, as the skip link names one, is no state.
  if (location.hash && !location.hash.includes("=")) return;
  const found = new URLSearchParams(location.hash.slice(1));
  for (const name of Object.keys(DEFAULTS)) state[name] = found.get(name) ?? DEFAULTS[name];
}

function change(values) {
  Object.assign(state, values);
  const kept = new URLSearchParams();
  for (const [name, value] of Object.entries(state)) if (value !== DEFAULTS[name]) kept.set(name, value);
  history.replaceState(null, "", `#${kept}`);
}

function chosenRun() {
  const run = runs[Number(state.run)];
  return run && run.inputs > 0 ? run : certified[0];
}

function hidden() {
  return new Set(state.off === "" ? [] : state.off.split(".").map(Number));
}

function runSelect(id, chosen, offered, onchange) {
  const select = el("select", { id, onchange: (event) => onchange(event.target.value) });
  const groups = new Map();
  for (const run of offered) {
    if (!groups.has(run.group)) groups.set(run.group, el("optgroup", { label: run.group.name }));
    groups.get(run.group).append(el("option", { value: run.id, selected: run === chosen }, run.name));
  }
  if (groups.size > 1) select.append(...groups.values());
  else for (const group of groups.values()) select.append(...group.children);
  return select;
}

function field(text, ...controls) {
  return el("span", { class: "field" }, el("label", { for: controls[0].id }, text), ...controls);
}

function whole(number) {
  return String(number).replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

// Cut off, never rounded up.
function percentDown(part, all, digits = 1) {
  const scale = 10 ** digits;
  return (Math.floor((100 * scale * part) / all + 1e-9) / scale).toFixed(digits);
}

// Radii arrive as decimals already cut off; 1e-9 undoes what binary multiplication may take away.
function radiusText(radius, digits = 3) {
  const scale = 10 ** digits;
  return (Math.floor(radius * scale + 1e-9) / scale).toFixed(digits);
}

function ticks(reach, most) {
  const power = 10 ** Math.floor(Math.log10(reach / most));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => reach / size <= most);
  const marks = [];
  for (let k = 0; k * step <= reach * (1 + 1e-9); k += 1) marks.push(Number((k * step).toPrecision(12)));
  return marks;
}
