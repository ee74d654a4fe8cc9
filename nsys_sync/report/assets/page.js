/** Puts the page together: first the table, then, after it has been painted, the timeline. */
document.documentElement.classList.add("scripted");

const late = {
  count: (site) => late.timeline ? late.timeline.occurrences.count(site) : 0,
  go: (site, place) => late.timeline && late.timeline.occurrences.go(site, place),
};
const table = siteTable(data.timeline ? late : null);

document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  if (late.timeline) late.timeline.draw();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { if (late.timeline) late.timeline.draw(); });
