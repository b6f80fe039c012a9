// Inputs one by one.
const STEP = 24;
let most = STEP;
const FILTERS = [["all", "All"], ["wrong", "Wrong"], ["abstained", "Abstained"], ["weak", "Least robust"]];
const SORTS = [["radius", "radius"], ["label", "label"], ["share", "p_A"]];

function className(group, number) {
  if (number === null || number === undefined) return "not known";
  const names = group.data.classes;
  return names && number < names.length ? names[number] : `class ${number}`;
}

function inputsOf(run) {
  const columns = run.records;
  return columns.index.map((index, k) => {
    const one = { run, index };
    for (const [name, values] of Object.entries(columns)) one[name] = values[k];
    one.abstained = one.predicted === -1;
    one.right = one.predicted === one.label;
    one.share = one.votes === null ? null : one.votes / one.total;
    return one;
  });
}

function passes(one) {
  if (state.q !== "" && one.index !== Number(state.q)) return false;
  if (state.filter === "wrong") return !one.right && !one.abstained;
  if (state.filter === "abstained") return one.abstained;
  if (state.filter === "weak") return one.weak === 1;
  return true;
}

function sorted(inputs) {
  const key = SORTS.some(([name]) => name === state.sort) ? state.sort : "radius", turn = state.down ? -1 : 1;
  return inputs.sort((a, b) => turn * ((a[key] ?? -1) - (b[key] ?? -1)) || a.index - b.index);
}

function pictureOf(source, words) {
  return source === undefined ? null : el("img", { src: source, alt: words });
}

function stripOf(values, ranges, words, names, texts) {
  if (!values) return null;
  const strip = el("div", { class: "strip", role: "img", "aria-label": `${words}: ${values.join(", ")}` });
  values.forEach((value, k) => {
    const [low, high] = ranges[k];
    const bar = el("i", { title: `${names ? names[k] : `feature ${k}`}: ${texts ? texts[k] : value}` });
    bar.style.height = `${Math.min(100, Math.max(4, high > low ? (100 * (value - low)) / (high - low) : 50))}%`;
    strip.append(bar);
  });
  return strip;
}

const featureRanges = new Map();
function rangesOf(group) {
  if (!featureRanges.has(group)) {
    const all = Object.values(group.data.inputs);
    featureRanges.set(group, (all[0] || []).map((_, k) => [Math.min(...all.map((one) => one[k])), Math.max(...all.map((one) => one[k]))]));
  }
  return featureRanges.get(group);
}

function viewsOf(one) {
  const found = one.run.group.data;
  const clean = found.inputs[one.index], noisy = (found.noisy[one.sigma] || {})[one.index];
  if (clean === undefined) return null;
  const words = [`input ${one.index}`, `input ${one.index} with noise`];
  if (found.kind === "pictures") {
    return el("div", { class: "views" },
      el("figure", {}, pictureOf(clean, words[0]), el("figcaption", {}, "input")),
      noisy === undefined ? null : el("figure", {}, pictureOf(noisy, words[1]), el("figcaption", {}, `noise σ ${one.sigma}`)));
  }
  const ranges = rangesOf(one.run.group), names = found.features, texts = (found.texts || {})[one.index];
  const told = texts ? texts.map((text, k) => `${names[k]}: ${text}`) : clean;
  return el("div", { class: "views features" },
    el("figure", {}, stripOf(clean, ranges, words[0], names, texts), el("figcaption", {}, "features")),
    noisy === undefined ? null : el("figure", {}, stripOf(noisy, ranges, words[1]), el("figcaption", {}, `noise σ ${one.sigma}`)),
    el("details", {}, el("summary", {}, "values"), el("p", {}, told.join(", "))));
}

function votesOf(one) {
  if (one.total === null) return el("p", { class: "note" }, "no votes in the log");
  const group = one.run.group;
  const rest = one.total - one.leaders.reduce((sum, [, votes]) => sum + votes, 0);
  const words = one.leaders.map(([number, votes]) => `${className(group, number)} ${percentDown(votes, one.total)} %`);
  const bar = el("div", { class: "votes", role: "img", "aria-label": `votes: ${words.join(", ")}` });
  one.leaders.forEach(([number, votes], k) => {
    const kind = number === one.label ? "label" : number === one.rival ? "rival" : `other${k % 2}`;
    const piece = el("i", { class: kind, title: words[k] });
    piece.style.flexGrow = String(votes);
    bar.append(piece);
  });
  if (rest > 0) {
    const piece = el("i", { class: "rest", title: "all others" });
    piece.style.flexGrow = String(rest);
    bar.append(piece);
  }
  return bar;
}

function changesOf(one) {
  if (!one.changes || !one.changes.length) return null;
  return el("details", { class: "changes" }, el("summary", {}, `may change: up to ${one.changes.length - 1} categories`),
    el("ul", {}, ...one.changes.map((sentence) => el("li", {}, sentence))));
}

function card(one) {
  const group = one.run.group;
  const verdict = one.abstained ? "abstained" : one.right ? "right" : "wrong";
  const rows = [["label", className(group, one.label)], ["answer", one.abstained ? "none: the votes don’t decide" : className(group, one.predicted)]];
  if (one.total !== null) {
    rows.push(["p_A", `${percentDown(one.votes, one.total, 2)} %${one.abstained ? ` for ${className(group, one.chosen)}` : ""}`]);
    rows.push(["nearest wrong", one.rival === null ? "none has a vote" : `${className(group, one.rival)}, ${percentDown(one.rivalVotes, one.total, 2)} %`]);
  }
  if (one.base !== null) rows.push(["without noise", className(group, one.base)]);
  return el("li", { class: `card ${verdict}`, "data-index": one.index, "data-radius": one.radius, "data-label": one.label, "data-share": one.share },
    el("div", { class: "head" }, el("span", {}, `#${one.index}`), el("span", { class: "tag" }, verdict),
      el("b", { title: "certified radius" }, one.abstained ? "–" : radiusText(one.radius))),
    viewsOf(one), votesOf(one), changesOf(one), el("dl", {}, ...rows.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])));
}

function showExplorer() {
  const offered = certified.filter((run) => run.records && run.records.index.length);
  const title = el("h2", { id: "explorer-title" }, "Inputs");
  if (!offered.length) return place("explorer", title, el("p", { class: "note" }, "No inputs are on this page."));
  const chosen = chosenRun(), run = offered.includes(chosen) ? chosen : offered[0];
  const inputs = inputsOf(run);
  const cards = el("ul", { class: "cards" }), count = el("p", { class: "note", id: "explorer-count", "aria-live": "polite" });
  const more = el("button", { type: "button", id: "explorer-more", onclick: () => { most += STEP; list(); } }, "Show more");
  const filters = FILTERS.map(([name, text]) => el("button", { type: "button", "data-filter": name,
    onclick: () => { most = STEP; change({ filter: name }); list(); } }, text, " ", el("small", {}, whole(run.counts[name]))));
  function list() {
    for (const button of filters) button.setAttribute("aria-pressed", String(button.dataset.filter === state.filter));
    const found = sorted(inputs.filter(passes));
    cards.replaceChildren(...found.slice(0, most).map(card));
    more.hidden = found.length <= most;
    const whose = run.counts[state.filter] ?? run.counts.all;
    count.textContent = state.q !== "" && !found.length
      ? `Input ${state.q} is not on this page under this filter: it holds ${whole(inputs.length)} of the run’s ${whole(run.counts.all)} inputs.`
      : `${whole(Math.min(most, found.length))} of ${whole(found.length)} shown; the run has ${whole(whose)} such inputs, the page holds ${whole(inputs.length)} of its ${whole(run.counts.all)}.`;
  }
  const turn = el("button", { type: "button", id: "explorer-turn", class: "quiet", "aria-label": "Reverse the order",
    onclick: () => { change({ down: state.down ? "" : "1" }); turn.textContent = state.down ? "↓ falling" : "↑ rising"; list(); } },
    state.down ? "↓ falling" : "↑ rising");
  const sort = el("select", { id: "explorer-sort", onchange: (event) => { change({ sort: event.target.value }); list(); } },
    ...SORTS.map(([name, text]) => el("option", { value: name, selected: name === state.sort }, text)));
  const search = el("input", { id: "explorer-search", type: "search", inputmode: "numeric", placeholder: "index", value: state.q, size: 7,
    oninput: (event) => { change({ q: event.target.value.trim().replace(/\D/g, "") }); list(); } });
  const partly = data.explored.runs < data.explored.of
    ? `The page holds inputs of ${data.explored.runs} of ${data.explored.of} runs, the first ones of each data set.` : "";
  const votes = inputs.some((one) => one.total !== null)
    ? `p_A: the answer’s share of ${run.n ? `${whole(run.n)} votes` : "the votes"}, an estimate. Nearest wrong class: the one with most votes that isn’t the label. In the bar, green is the label and orange the nearest wrong class. ` : "";
  place("explorer", title,
    el("p", { class: "note" }, `${run.group.data.note} ${votes}Radii are cut off, never rounded up. Least robust: the tenth of the right answers with the smallest radii. ${partly}`),
    el("div", { class: "controls" }, field("Run", runSelect("explorer-run", run, offered, chooseRun)),
      field("sort by", sort, turn), field("find", search)),
    el("div", { class: "filters", role: "group", "aria-label": "Which inputs" }, ...filters), count, cards, more);
  list();
}
