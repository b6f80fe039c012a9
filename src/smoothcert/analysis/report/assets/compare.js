// Two runs, input by input, at a radius.
const unpacked = new Map();
function levelsOf(run) {
  if (!unpacked.has(run)) {
    const text = atob(run.group.comparison.levels[run.name]);
    unpacked.set(run, Uint8Array.from(text, (character) => character.charCodeAt(0)));
  }
  return unpacked.get(run);
}

// Two-sided exact test that b of b + c follows a fair coin, summed in logarithms.
function mcnemar(b, c) {
  const n = b + c, few = Math.min(b, c);
  if (n === 0 || b === c) return 1;
  let term = -n * Math.LN2, sum = 0, scale = term;
  const terms = [term];
  for (let k = 1; k <= few; k += 1) {
    term += Math.log(n - k + 1) - Math.log(k);
    terms.push(term);
    scale = Math.max(scale, term);
  }
  for (const one of terms) sum += Math.exp(one - scale);
  return Math.min(1, 2 * Math.exp(scale + Math.log(sum)));
}

function crossCounts(first, second, radii) {
  const a = levelsOf(first), b = levelsOf(second);
  const found = { both: 0, a: 0, b: 0, neither: 0, total: 0 };
  for (let k = 0; k < a.length; k += 1) {
    if (a[k] === 255 || b[k] === 255) continue;
    found.total += 1;
    const x = a[k] > radii, y = b[k] > radii;
    found[x ? (y ? "both" : "a") : (y ? "b" : "neither")] += 1;
  }
  return found;
}

function comparable() {
  return certified.filter((run) => run.group.comparison && run.group.comparison.levels[run.name] !== undefined);
}

function showCompare() {
  const offered = comparable();
  document.getElementById("compare").hidden = certified.length < 2;
  if (offered.length < 2) {
    return place("compare", el("h2", { id: "compare-title" }, "Comparison"), el("p", { class: "note" },
      "No two runs here can be compared: a test takes complete runs on the same data, whose inputs don’t depend on one another."));
  }
  const first = offered.find((run) => String(run.id) === state.a) || offered[0];
  const rivals = offered.filter((run) => run.group === first.group && run !== first);
  const leftOut = certified.filter((run) => run.group === first.group && !offered.includes(run)).map((run) => run.name);
  const second = rivals.find((run) => String(run.id) === state.b) || rivals[0];
  const radii = first.group.comparison.radii;
  let nearest = 0;
  radii.forEach((radius, k) => { if (Number(radius) <= first.group.headlineRadius + 1e-12) nearest = k; });
  const at = state.r === "" ? nearest : Math.min(radii.length - 1, Math.max(0, Number(state.r) || 0));
  const result = el("div", { id: "compare-result", "aria-live": "polite" });
  const slider = el("input", { type: "range", id: "compare-radius", min: 0, max: radii.length - 1, step: 1, value: at,
    oninput: (event) => { change({ r: event.target.value }); showResult(Number(event.target.value)); } });
  const shown = el("output", { for: "compare-radius" });
  function showResult(k) {
    shown.textContent = radii[k];
    slider.setAttribute("aria-valuetext", `radius ${radii[k]}`);
    const found = crossCounts(first, second, k);
    const p = mcnemar(found.a, found.b);
    const piece = (kind, count, text) => el("div", { class: `piece ${kind}`, "data-count": count },
      el("b", {}, whole(count)), el("span", {}, text));
    const bar = el("div", { class: "crossbar", "aria-hidden": "true" });
    for (const kind of ["both", "a", "b", "neither"]) {
      const part = el("i", { class: kind });
      part.style.flexGrow = String(found[kind]);
      bar.append(part);
    }
    const worth = p < 1e-300 ? "< 1e-300" : `= ${p >= 0.001 ? p.toFixed(3) : p.toExponential(1)}`;
    result.replaceChildren(bar, el("div", { class: "pieces" }, piece("both", found.both, "certified by both"),
      piece("a", found.a, `by ${first.name} only`), piece("b", found.b, `by ${second.name} only`), piece("neither", found.neither, "by neither")),
      el("p", {}, `Of the ${whole(found.total)} inputs that both runs have, at radius ${radii[k]}. Exact McNemar test: p ${worth}. `,
        el("span", { class: "note" }, "It holds for one pair and one radius chosen beforehand, and speaks of the choice of inputs, not of another training.")));
    result.dataset.p = String(p);
  }
  place("compare", el("h2", { id: "compare-title" }, "Comparison"),
    first.group.byLabels ? el("p", { class: "note" }, "The logs state no hash of their data: they are taken to be about the same inputs because all indices and labels agree.") : "",
    leftOut.length ? el("p", { class: "note" }, `No test holds for ${leftOut.join(", ")}: not complete, or inputs depend on one another.`) : "",
    el("div", { class: "controls" },
      field("Run", runSelect("compare-a", first, offered, (id) => { change({ a: id, b: "", r: "" }); showCompare(); })),
      field("against", runSelect("compare-b", second, rivals, (id) => { change({ b: id }); showCompare(); })),
      field(`${data.norm} radius`, slider, shown)), result);
  showResult(at);
}
