// Everything in its place.
function chooseRun(id) {
  most = STEP;
  change({ run: String(id) });
  const focused = document.activeElement && document.activeElement.id;
  showStatement();
  showSpread();
  showExplorer();
  const again = focused && document.getElementById(focused);
  if (again) again.focus({ preventScroll: true });
}

function dark() {
  return state.theme ? state.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function showTheme() {
  document.documentElement.dataset.theme = state.theme || "auto";
  document.getElementById("theme").textContent = dark() ? "Light" : "Dark";
}

function showFooter() {
  const size = Number(document.querySelector("meta[name=page-size]").content);
  place("footer", `Made by smoothcert ${data.version} on ${data.made.replace("T", " ").replace("+00:00", " UTC")}. `,
    `${(size / 1e6).toFixed(2)} MB in one file, which asks the network for nothing. `,
    "What exactly is promised, and what isn’t: docs/guarantees.md of smoothcert.");
}

function showNavigation() {
  const links = [["statement", "Statement"], ["groups", "Results"], ...(certified.length > 1 ? [["compare", "Comparison"]] : []), ["spread", "Spread"],
    ["explorer", "Inputs"], ["provenance", "Plan & hashes"]];
  // The address keeps the page's state, so links scroll instead of changing it.
  place("nav", ...links.map(([id, text]) => el("a", { href: `#${id}`, onclick: (event) => {
    event.preventDefault();
    document.getElementById(id).scrollIntoView({ behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
  } }, text)));
}

function showAll() {
  showTheme();
  showStatement();
  charts.length = 0;
  place("groups", ...data.groups.map((group) => el("section", { class: "group" }, el("h2", {}, `Results on ${group.name}`),
    ...tableOf(group), curvesOf(group))));
  redrawCharts();
  showCompare();
  showSpread();
  showExplorer();
}

readAddress();
place("banners", ...data.banners.map((text) => el("div", { class: "banner", role: "status" }, text)));
showNavigation();
showAll();
showProvenance();
showFooter();
document.getElementById("theme").addEventListener("click", () => {
  change({ theme: dark() ? "light" : "dark" });
  showTheme();
});
window.addEventListener("hashchange", () => { readAddress(); showAll(); });
let lastWidth = innerWidth;
window.addEventListener("resize", () => {
  if (innerWidth !== lastWidth) redrawCharts();
  lastWidth = innerWidth;
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", showTheme);
window.addEventListener("beforeprint", () => {
  for (const part of document.querySelectorAll("details")) part.open = true;
});
