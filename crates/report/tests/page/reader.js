addEventListener("load", async () => {
  const seen = {}, all = selector => [...document.querySelectorAll(selector)], one = selector => document.querySelector(selector);
  const settle = () => new Promise(done => setTimeout(done, 100));
  const shown = () => all("#findings .finding").filter(it => !it.hidden).length;
  const range = () => one("#range") ? [Number(one("#range").dataset.from), Number(one("#range").dataset.to)] : null;
  // Parts are made when the browser has noticed that they are seen, which can take several frames.
  const until = async condition => { for (let i = 0; i < 50 && !condition(); i++) await settle(); };
  const visit = async id => { const part = document.getElementById(id); if (part) { part.scrollIntoView(); await settle(); } };
  try {
    await settle();
    seen.findings = shown();
    const search = one("#search");
    search.value = "WORD"; search.dispatchEvent(new Event("input")); seen.searched = shown();
    search.value = ""; search.dispatchEvent(new Event("input"));
    const chip = one("[data-severity=error]");
    chip.click(); seen.without_errors = shown();
    search.value = "nothing has this word"; search.dispatchEvent(new Event("input"));
    location.hash = "#FINDING";
    await settle(); await settle();
    const finding = document.getElementById("FINDING"), within = selector => finding.querySelectorAll(selector).length;
    seen.opened = finding.open && !finding.hidden && shown() === seen.findings;
    seen.rows = within(".labels .strong"); seen.marks = within(".hit"); seen.failures = within("line.failure"); seen.lost = within(".picture .lostband");
    seen.reads = within(".picture .load"); seen.joins = within(".join"); seen.snippets = within(".snippet"); seen.stacks = within(".stack");
    const mark = finding.querySelector(".hit");
    if (mark) { mark.dispatchEvent(new Event("click")); seen.chosen = finding.querySelector(".chosen-mark").textContent; }
    await visit("trace");
    if (one("#trace")) await until(() => one("#range"));
    seen.range = range();
    seen.trace = one("#trace") ? one("#trace").textContent : "";
    for (let i = 0; i < 3; i++) if (one("#zoom-in")) one("#zoom-in").click();
    seen.zoomed = range();
    if (one("#zoom-reset")) one("#zoom-reset").click();
    seen.again = range();
    await visit("points");
    if (one("#points")) await until(() => one("#flame button"));
    seen.frames = all("#flame button").length;
    await visit("sources");
    for (const it of all("#sources details")) it.open = true;
    await settle();
    seen.source_lines = all("#sources .failed, #sources .some, #sources .passed, #sources .part, #sources .untried").length;
    one("#theme").click();
    await settle();
    seen.incomplete = one("#incomplete") ? one("#incomplete").textContent : "";
    seen.space = one("#space") ? one("#space").textContent : "";
    seen.unchecked = one("#unchecked").textContent;
    seen.images = all("img").length;
    seen.width = innerWidth; seen.content_width = document.documentElement.scrollWidth;
  } catch (error) { heard.push("reader: " + error.stack); }
  seen.messages = heard;
  const bytes = new TextEncoder().encode(JSON.stringify(seen));
  // In a frame, the page around it shows the result.
  parent.postMessage(btoa(String.fromCharCode(...bytes)), "*");
});
