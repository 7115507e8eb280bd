/* Keeps the reader's choices over a reload. A page of train.watch also updates its durations, and reloads itself. */

(() => {
  const RELOAD_EVERY = 10_000;
  const key = `trainyard ${document.querySelector(".run")?.textContent}`;
  const fields = () => [...document.querySelectorAll("input[id], select[id]")];
  const scrolled = () => [...document.querySelectorAll(".scroll[id], pre[id], .hits")];
  const hiddenNames = () => [...document.querySelectorAll("#legend button")].filter((button) => button.ariaPressed === "false").map((button) => button.dataset.name);

  function save() {
    const sorted = [...document.querySelectorAll("table[id] thead th[aria-sort]")].map((heading) => [heading.closest("table").id, heading.cellIndex, heading.ariaSort]);
    const kept = {
      fields: fields().map((field) => [field.id, field.type === "checkbox" ? field.checked : field.value]),
      open: [...document.querySelectorAll("details[id]")].map((element) => [element.id, element.open]),
      hidden: document.getElementById("legend")?.dataset.chosen ? hiddenNames() : null, sorted, all: document.getElementById("more")?.ariaPressed === "false",
      scrolled: scrolled().map((element) => [element.id, element.scrollLeft, element.scrollTop]),
      focus: document.activeElement?.id, at: scrollY,
    };
    sessionStorage.setItem(key, JSON.stringify(kept));
  }

  function restore(kept) {
    const by = (id) => document.getElementById(id);
    for (const [id, value] of kept.fields) {
      const field = by(id);
      if (!field || (field.type === "checkbox" ? field.checked : field.value) === value) continue;
      if (field.type === "checkbox") field.checked = value;
      else if (field.tagName !== "SELECT" || [...field.options].some((option) => option.value === value)) field.value = value;
      field.dispatchEvent(new Event("input"));
      field.dispatchEvent(new Event("change"));
    }
    for (const [id, open] of kept.open) if (by(id)) by(id).open = open;
    for (const button of document.querySelectorAll("#legend button")) if (kept.hidden && kept.hidden.includes(button.dataset.name) !== (button.ariaPressed === "false")) button.click();
    for (const [id, column, order] of kept.sorted) {
      const button = by(id)?.tHead.rows[0].cells[column]?.querySelector("button");
      for (let clicks = order === "descending" ? 2 : 1; clicks > 0; clicks--) button?.click();
    }
    if (kept.all) by("more")?.click();
    for (const [id, left, top] of kept.scrolled) by(id)?.scrollTo(left, top);
    by(kept.focus)?.focus({preventScroll: true});
    history.scrollRestoration = "manual";
    scrollTo(0, kept.at);
  }

  /* No reload while a video plays, or while text is selected. */
  function isBusy() {
    return String(getSelection()) !== "" || [...document.querySelectorAll("video")].some((video) => !video.paused);
  }

  const isReload = performance.getEntriesByType("navigation")[0]?.type === "reload";
  const kept = JSON.parse(sessionStorage.getItem(key) ?? "null");
  if (kept && isReload) restore(kept);
  addEventListener("pagehide", save);

  const refresh = document.getElementById("refresh"), opened = Date.now();
  if (!refresh) return;
  function tick() {
    for (const cell of document.querySelectorAll("[data-began]")) cell.textContent = duration(Math.max(0, Date.now() / 1000 - cell.dataset.began));
    if (refresh.checked && !isBusy() && Date.now() > opened + RELOAD_EVERY) location.reload();
  }
  tick();
  setInterval(tick, 1000);
})();
