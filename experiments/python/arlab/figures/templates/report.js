
"use strict";
// The page can be read without this. A view of a table or figure is in the address, so that a link shows the same:
// #table=part1-table1&sort=codec&descending&filter=qr-q4 or #figure=part1-figure2.

const text = (cell) => cell.dataset.value ?? cell.textContent;
const number = (cell) => (/^[+-]?inf/i.test(text(cell)) ? Infinity * (text(cell)[0] === "-" ? -1 : 1) : parseFloat(text(cell)));
const make = (tag, properties, ...children) => {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
};
const views = {};

function setUpTable(table) {
  const headings = [...table.tHead.rows[0].cells];
  const names = headings.map((th) => th.textContent);
  const rows = [...table.tBodies[0].rows];
  const label = "Rows with these words, or as codec=qr-q4 ranks>=4";
  const input = make("input", { type: "search", placeholder: "Filter", title: label, ariaLabel: label });
  const count = make("span", { role: "status" });
  let sorted = null;

  // Empty cells stay at the end in both directions; equal ones keep the order of the file.
  function sort(name, descending) {
    const column = names.indexOf(name);
    if (column < 0) return;
    const numeric = headings[column].classList.contains("n");
    const keys = new Map(rows.map((row) => [row, numeric ? number(row.cells[column]) : text(row.cells[column])]));
    const compare = numeric ? (a, b) => a - b || 0 : (a, b) => a.localeCompare(b, "en", { numeric: true });
    const empty = (key) => key === "" || Number.isNaN(key);
    const order = [...rows].sort((one, other) => {
      const [a, b] = [keys.get(one), keys.get(other)];
      return empty(a) - empty(b) || (empty(a) ? 0 : (descending ? -1 : 1) * compare(a, b));
    });
    table.tBodies[0].append(...order);
    headings.forEach((th) => th.removeAttribute("aria-sort"));
    headings[column].ariaSort = descending ? "descending" : "ascending";
    sorted = { name, descending };
  }

  function holds(row, word) {
    const found = /^(\w+)(<=|>=|=|<|>)(.*)$/.exec(word);
    const column = found ? names.indexOf(found[1]) : -1;
    if (column < 0) return row.textContent.toLowerCase().includes(word.toLowerCase());
    const [cell, sign, value] = [row.cells[column], found[2], found[3]];
    if (sign === "=") return text(cell).toLowerCase() === value.toLowerCase() || number(cell) === Number(value || NaN);
    const [a, b] = [number(cell), Number(value)];
    return { "<": a < b, ">": a > b, "<=": a <= b, ">=": a >= b }[sign];
  }

  function filter(words) {
    const each = words.split(/\s+/).filter(Boolean);
    rows.forEach((row) => { row.hidden = !each.every((word) => holds(row, word)); });
    const left = rows.filter((row) => !row.hidden).length;
    count.textContent = each.length ? left + " of " + rows.length + " rows" : "";
    input.value = words;
  }

  function remember() {
    const view = new URLSearchParams({ table: table.id });
    if (sorted) view.set("sort", sorted.name);
    if (sorted && sorted.descending) view.set("descending", "");
    if (input.value) view.set("filter", input.value);
    history.replaceState(null, "", "#" + view);
  }

  headings.forEach((th, column) => {
    const button = make("button", { type: "button", title: "Sort by " + names[column] }, names[column]);
    button.addEventListener("click", () => {
      sort(names[column], th.ariaSort === "ascending");
      remember();
    });
    th.replaceChildren(button);
  });
  input.addEventListener("input", () => { filter(input.value); remember(); });
  table.parentElement.before(make("div", { className: "filter" }, input, count));
  views[table.id] = (wanted) => {
    table.closest("details").open = true;
    if (wanted.has("sort")) sort(wanted.get("sort"), wanted.has("descending"));
    filter(wanted.get("filter") ?? "");
    table.closest("details").scrollIntoView();
  };
}

// A figure in full: the wheel zooms where the pointer is, dragging moves, a double click shows all of it again.
const picture = make("img", { alt: "", draggable: false });
const close = make("button", { type: "button" }, "Close");
const hint = make("p", {}, "Wheel: zoom. Drag: move. Double click: all of it. Esc: close.");
const dialog = make("dialog", {}, picture, hint, close);
let place = { x: 0, y: 0, scale: 1 };
let whole = 1;  // the scale at which all of it can be seen

function put(x, y, scale) {
  place = { x, y, scale };
  picture.style.transform = "translate(" + x + "px, " + y + "px) scale(" + scale + ")";
}

function fit() {
  const [width, height] = [picture.naturalWidth || 1, picture.naturalHeight || 1];
  whole = Math.min(dialog.clientWidth / width, dialog.clientHeight / height);
  put((dialog.clientWidth - whole * width) / 2, (dialog.clientHeight - whole * height) / 2, whole);
}

function zoom(x, y, factor) {
  const scale = Math.min(Math.max(place.scale * factor, whole / 4), whole * 40);
  put(x - ((x - place.x) * scale) / place.scale, y - ((y - place.y) * scale) / place.scale, scale);
}

function setUpFigure(figure) {
  const image = figure.querySelector("img");
  const open = () => {
    picture.src = image.src;
    picture.alt = image.alt;
    dialog.showModal();
    picture.decode().then(fit, fit);
    history.replaceState(null, "", "#" + new URLSearchParams({ figure: figure.id }));
  };
  const button = make("button", { type: "button", title: "Open in full", ariaLabel: "Open in full: " + image.alt });
  image.replaceWith(button);
  button.append(image);
  button.addEventListener("click", open);
  views[figure.id] = open;
}

document.body.append(dialog);
dialog.addEventListener("wheel", (event) => {
  event.preventDefault();
  zoom(event.clientX, event.clientY, Math.exp(-event.deltaY / 400));
}, { passive: false });
picture.addEventListener("pointermove", (event) => {
  if (event.buttons & 1) put(place.x + event.movementX, place.y + event.movementY, place.scale);
});
dialog.addEventListener("keydown", (event) => {
  const factor = { "+": 1.25, "=": 1.25, "-": 0.8 }[event.key];
  if (factor) zoom(dialog.clientWidth / 2, dialog.clientHeight / 2, factor);
});
dialog.addEventListener("dblclick", fit);
close.addEventListener("click", () => dialog.close());
document.querySelectorAll("table").forEach(setUpTable);
document.querySelectorAll("figure").forEach(setUpFigure);

function show() {
  const wanted = new URLSearchParams(location.hash.slice(1));
  const view = views[wanted.get("table") ?? wanted.get("figure")];
  if (view) view(wanted);
}
addEventListener("hashchange", show);
addEventListener("load", show);  // once figures have their heights, so that a table is where it is scrolled to
