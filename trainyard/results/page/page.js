/* Times in the reader's own zone; commands copied by a click; tables sorted by a click on a heading. */
"use strict";

for (const time of document.querySelectorAll("time")) {
  const moment = new Date(time.dateTime);
  if (!Number.isNaN(moment.valueOf())) {
    time.title = time.textContent;
    time.textContent = moment.toLocaleString(undefined, {dateStyle: "medium", timeStyle: "medium"});
  }
}

for (const button of document.querySelectorAll("button[data-copies]")) {
  const text = document.getElementById(button.dataset.copies);
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text.textContent);
      button.textContent = "copied";
    } catch {
      // A page from a server without TLS has no clipboard: the command is selected, and the reader copies it.
      getSelection().selectAllChildren(text);
    }
  });
}

function valueOf(body, column) {
  const cell = body.rows[0].cells[column];
  const value = cell.dataset.value ?? cell.textContent.trim();
  return value !== "" && !Number.isNaN(Number(value)) ? Number(value) : value;
}

function compare(left, right) {
  if (typeof left === "number" && typeof right === "number") return left - right;
  return String(left).localeCompare(String(right), undefined, {numeric: true});
}

function sort(table, column) {
  const headings = [...table.tHead.rows[0].cells];
  const downwards = headings[column].ariaSort === "ascending";
  for (const heading of headings) heading.removeAttribute("aria-sort");
  headings[column].ariaSort = downwards ? "descending" : "ascending";
  const bodies = [...table.tBodies].map((body) => [valueOf(body, column), body]);
  bodies.sort(([left], [right]) => (downwards ? -1 : 1) * compare(left, right));
  table.append(...bodies.map(([, body]) => body));
}

for (const table of document.querySelectorAll("table.sortable")) {
  [...table.tHead.rows[0].cells].forEach((heading, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    button.addEventListener("click", () => sort(table, column));
    heading.append(button);
  });
}
