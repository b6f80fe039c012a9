// The statement, the table, and how radii and votes are spread.
const sigmaOf = (run) => run.sigma === null ? null : `${run.sigma} ${run.sigmaMark}`.trim();
const inputsHeld = (run) => whole(run.inputs) + (run.complete ? "" : run.planned === null ? " so far" : ` of ${whole(run.planned)}`);

function showStatement() {
  const run = chosenRun() || runs[0];
  const said = run.statement;
  const facts = [["model", run.model], ["data", run.group.name], ["inputs", inputsHeld(run)], ["σ", sigmaOf(run)], [run.votesUsed ? "votes n, at most" : "votes n", run.n === null ? null : whole(run.n)],
    ["α", run.alpha], ["bound", run.bound]];
  const list = (lines) => el("ul", {}, ...lines.map((line) => el("li", {}, line)));
  const parts = [
    el("p", { class: "title" }, data.title),
    runs.length > 1
      ? el("div", { class: "kicker" }, el("label", { for: "statement-run" }, said.proved ? "What is proved of" : "What is said of"),
        runSelect("statement-run", run, certified.length ? certified : runs, chooseRun))
      : el("p", { class: "kicker" }, said.proved ? "What is proved of" : "What is said of", el("b", {}, run.name)),
    el("h1", { id: "statement-title" }, said.lead, el("strong", {}, said.figure), said.rest.replaceAll(" %", "\u00a0%").replace("probability ", "probability\u00a0")),
    el("p", { class: "guarantee" }, el("b", {}, "Each certificate. "), run.guarantee),
    el("ul", { class: "facts" }, ...facts.map(([name, value]) =>
      el("li", {}, el("span", {}, name), " ", value === null || value === undefined ? "not stated" : String(value)))),
    el("ul", { class: "notes" }, ...said.notes.concat(run.votesUsed ? [`${run.votesUsed}.`] : [], run.levels.map((line) => `${line}.`)).map((line) => el("li", {}, line))),
  ];
  parts.push(el("div", { class: "audit" }, el("div", {}, el("h4", {}, "Verified by the commands below"), list(run.audit.verified)),
    el("div", {}, el("h4", {}, "Believed: no file can show it"), list(run.audit.believed)), el("pre", {}, run.audit.commands.join("\n"))));
  if (runs.length > 1) {
    parts.push(el("details", {}, el("summary", {}, `All ${runs.length} statements`),
      el("p", { class: "note" }, "Each holds by itself. To pick the best of several afterwards is an optimistic choice."),
      el("ol", { class: "statements" }, ...runs.map((one) => el("li", {}, el("b", {}, one.name), ": ", one.statement.lead,
        el("strong", {}, one.statement.figure), one.statement.rest)))));
  }
  place("statement", ...parts);
}

function rateCell(rate, kind) {
  if (!rate) return el("td", { class: kind }, el("span", { class: "unknown" }, "not stated"));
  return el("td", { class: kind, title: `${rate.count} inputs` }, el("b", {}, rate.percent), ...(rate.low === null ? [] : [el("small", {}, `${rate.low}–${rate.high}`)]));
}

function tableOf(group) {
  const plain = (value, kind) => el("td", { class: kind }, value === null || value === undefined ? el("span", { class: "unknown" }, "–") : String(value));
  const based = group.runs.some((run) => run.base);
  const bounded = group.runs.some((run) => run.smoothed && run.smoothed.low !== null);
  const heads = ["ACR", "σ", "n", "bound", "inputs", "abstained", ...(based ? ["base accuracy"] : []), "smoothed accuracy (radius 0)"];
  const row = (run) => el("tr", {}, el("th", { scope: "row" }, run.name), plain(run.inputs === 0 ? null : run.acr), plain(sigmaOf(run), "more"),
    plain(run.n === null || run.n === undefined ? null : whole(run.n), "more"), plain(run.bound, "more"), plain(inputsHeld(run), "more"),
    ...(run.inputs === 0 ? [el("td", { colspan: heads.length - 5 + group.tableRadii.length }, "nothing certified yet")]
      : [rateCell(run.abstained, "more"), ...(based ? [rateCell(run.base, "more")] : []), rateCell(run.smoothed, "more"), ...run.cells.map((rate) => rateCell(rate))]));
  const mean = (one) => el("tr", { class: "mean" }, el("th", { scope: "row" }, one.name), plain(one.acr), plain(one.sigma, "more"),
    ...heads.slice(2).map(() => el("td", { class: "more" })), ...one.cells.map((cell) => el("td", {}, el("b", {}, cell))));
  // Runs that differ in their seed alone stand below their mean.
  const averaged = new Set(group.means.flatMap((one) => one.runs));
  const rows = [...group.means.flatMap((one) => [mean(one), ...group.runs.filter((run) => one.runs.includes(run.name)).map(row)]),
    ...group.runs.filter((run) => !averaged.has(run.name)).map(row)];
  const hint = el("p", { class: "note sideways" }, "More columns: swipe or scroll sideways →");
  const box = el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `Table of ${group.name}` }, el("table", {},
      el("thead", {},
        el("tr", {}, el("th", { rowspan: 2, scope: "col" }, "run"), ...heads.map((head) => el("th", { rowspan: 2, scope: "col", class: head === "ACR" ? null : "more" }, head)),
          el("th", { colspan: group.tableRadii.length, scope: "colgroup" }, `certified accuracy (%) at ${data.norm} radius`)),
        el("tr", {}, ...group.tableRadii.map((radius) => el("th", { scope: "col" }, radius)))),
      el("tbody", {}, ...rows)));
  new ResizeObserver(() => { hint.hidden = box.scrollWidth <= box.clientWidth + 1; }).observe(box);
  return [
    hint,
    box,
    el("p", { class: "note" }, bounded ? "Small figures: 95 % intervals over the choice of inputs, one rate at a time. " : "", "ACR: average certified radius, 0 where the answer is wrong or missing. Smoothed accuracy: the smoothed classifier’s answer is right and wasn’t withheld. ",
      based ? "Base accuracy: the model alone, without noise; no certificate speaks of it." : "The runs don’t state the base accuracy, that of the model alone without noise."),
  ];
}

function bars(values, labels, describe) {
  const left = 34, width = 520, height = 150, bottom = 22, top = 12, most = Math.max(1, ...values.map((stack) => stack.reduce((a, b) => a + b, 0)));
  const each = (width - left) / values.length, tallest = height - bottom - top;
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "histogram", role: "img", "aria-label": describe });
  for (const count of most > 1 ? [most, Math.floor(most / 2)] : [most]) {
    const y = height - bottom - (count / most) * tallest;
    picture.append(svg("line", { class: "grid", x1: left, x2: width, y1: y, y2: y }),
      svg("text", { x: left - 5, y: y + 4, "text-anchor": "end" }, whole(count)));
  }
  values.forEach((stack, k) => {
    let base = height - bottom;
    stack.forEach((count, kind) => {
      const tall = count === 0 ? 0 : Math.max(1, (count / most) * tallest);
      base -= tall;
      picture.append(svg("rect", { x: left + k * each + 0.5, y: base, width: Math.max(1, each - 1), height: tall, class: `kind${kind}` }));
    });
  });
  picture.append(svg("line", { class: "ground", x1: left, x2: width, y1: height - bottom, y2: height - bottom }));
  labels.forEach((label, k) => {
    const anchor = k === 0 ? "start" : k === labels.length - 1 ? "end" : "middle";
    picture.append(svg("text", { x: left + (k / (labels.length - 1)) * (width - left), y: height - 6, "text-anchor": anchor }, label));
  });
  return picture;
}

function showSpread() {
  const run = chosenRun();
  if (!run) return place("spread");
  const found = run.histograms, reach = found.reach;
  const short = (value) => String(Number(value.toPrecision(3)));
  const figures = [el("figure", {}, bars(found.right.map((count, k) => [count, found.wrong[k]]), ["0", short(reach / 2), short(reach)],
    `Radii of ${run.name}, from 0 to ${short(reach)}`), el("figcaption", {}, "Inputs by the radius of their answer: ",
    el("span", { class: "key kind0" }), " right ", el("span", { class: "key kind1" }), " wrong",
    ` (${whole(run.counts.abstained)} abstentions have none)`))];
  if (found.shares) figures.push(el("figure", {}, bars(found.shares.map((count) => [count]), ["0", "0.5", "1"],
    `Share of the votes for the chosen class, ${run.name}`), el("figcaption", {}, "Inputs by the share of votes for the chosen class (estimate of p_A)")));
  else figures.push(el("p", { class: "note" }, "The log has no votes, so p_A isn’t known."));
  place("spread", el("h2", { id: "spread-title" }, "How radii and votes are spread"),
    el("div", { class: "controls" }, field("Run", runSelect("spread-run", run, certified, chooseRun))),
    el("div", { class: "pair" }, ...figures),
    el("p", {}, `ACR ${run.acr} is a mean, and a mean can be carried by few inputs: a model that is over-confident of some, whose radii are the largest, can beat a better one. `, run.carried || "", " Read it together with the curve."));
}

function showProvenance() {
  const list = (title, rows) => rows.length ? el("div", {}, el("h4", {}, title), el("dl", {}, ...rows.flatMap(([name, value]) =>
    [el("dt", {}, name), el("dd", {}, value)]))) : null;
  const all = runs.map((run, k) => el("details", { open: k === 0 }, el("summary", {}, run.name), el("div", { class: "columns" },
    list("Plan", run.provenance.plan), list("Versions", run.provenance.versions), list("SHA-256", run.provenance.hashes)),
    run.provenance.command ? el("div", {}, el("h4", {}, "Certify it again"), el("pre", {}, run.provenance.command)) : null));
  place("provenance", el("h2", { id: "provenance-title" }, "Plan, versions, hashes"), ...all,
    el("h4", {}, "Make this page again"), el("pre", {}, data.command));
}
