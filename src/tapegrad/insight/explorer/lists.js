"use strict";
// The data is one block, packed; everything below draws it. Lists hold only the rows that are seen.
const ROW = 18, PRINTED = 2000, $ = (id) => document.getElementById(id);
const make = (tag, cls, text) => {
  const el = document.createElement(tag);
  if (cls) el.className = cls;
  if (text !== undefined) el.textContent = text;
  return el;
};
const time = (s) => s < 0 ? `−${time(-s)}` : s >= 1 ? `${s.toPrecision(3)} s` : s >= 1e-3 ? `${(s * 1e3).toPrecision(3)} ms`
  : s >= 1e-6 ? `${(s * 1e6).toPrecision(3)} µs` : `${(s * 1e9).toFixed(0)} ns`;
const amount = (x, unit) => {
  for (const [name, size] of [["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3]])
    if (x >= size) return `${(x / size).toPrecision(3)} ${name}${unit}`;
  return `${Math.round(x)} ${unit}`.trim();
};
const percent = (x) => Math.abs(x) >= 0.1 ? `${Math.round(100 * x)}%` : `${+(100 * x).toPrecision(2)}%`;
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// ---- text of tapes, plans and sources, in colours

const WORDS = /(#.*$)|(%\d+|@\d+)|\b(for|in|if|def|return|while|and|or|not|import|from|raise|True|False|tape|plan|inp|out|cap|mem|guard|call|stop)\b|([A-Za-z_]\w*)(?=\()|(\b\d[\w.]*(?:e-?\d+)?\b)/g;
const KINDS = ["", "c", "v", "k", "f", "n"];
function coloured(el, text) {
  let last = 0;
  for (const found of text.matchAll(WORDS)) {
    if (found.index > last) el.append(text.slice(last, found.index));
    el.append(make("span", KINDS[found.findIndex((x, k) => k && x !== undefined)], found[0]));
    last = found.index + found[0].length;
  }
  if (last < text.length) el.append(text.slice(last));
}

// ---- which lines belong together

const links = { near: null, chosen: null, lists: [], after: [], opened: [], printed: 0 };
function spread(kind, n) {  // all that belongs to a line of one kind
  const all = { line: new Set(), call: new Set(), step: new Set(), row: new Set(), kernel: new Set() };
  const own = (r) => { all.row.add(r); if (data.kernelOfRow[r] >= 0) all.kernel.add(data.kernelOfRow[r]); };
  const add = {
    line: (k) => { for (const c of data.callsOfLine[k] || []) add.call(c, true); all.line.add(k); },
    call: (c, down) => {
      all.call.add(c);
      if (data.calls[c] >= 0) all.line.add(data.calls[c]);
      for (const s of data.stepsOfCall[c] || []) add.step(s, false);
    },
    step: (s, up) => {
      all.step.add(s);
      for (const r of data.rowsOfStep[s] || []) own(r);
      if (up) for (const c of data.steps[s]) { all.call.add(c); if (data.calls[c] >= 0) all.line.add(data.calls[c]); }
    },
    row: (r) => { for (const s of data.source[r][1]) add.step(s, true); own(r); },
    kernel: (k) => data.kernelOfRow.forEach((x, r) => { if (x === k) add.row(r); }),
  };
  if (n >= 0) add[kind](n, true);
  return all;
}
const same = (a, b) => a && b && a[0] === b[0] && a[1] === b[1];
function near(at) {
  if (same(at, links.nearAt) || (!at && !links.nearAt)) return;
  links.nearAt = at;
  links.near = at && at[1] >= 0 ? spread(...at) : null;
  changed();
}
function choose(at, from) {
  links.chosenAt = at && at[1] >= 0 && !same(at, links.chosenAt) ? at : null;
  links.chosen = links.chosenAt ? spread(...links.chosenAt) : null;
  changed();
  if (!links.chosen) return;
  for (const list of links.lists) if (list !== from) list.reveal();
  if (!from || !from.machine) for (const f of links.opened) f();
}
function changed() {
  for (const list of links.lists) list.mark();
  for (const f of links.after) f();
}
const marks = (set, at) => Boolean(set && at && at[1] >= 0 && set[at[0]].has(at[1]));

class List {
  constructor(el, count, draw, of, width, label) {
    Object.assign(this, { el, count, draw, of, rows: new Map(), cursor: -1 });
    el.tabIndex = 0;
    el.setAttribute("role", "listbox");
    el.setAttribute("aria-label", label);
    el.replaceChildren(this.room = make("div", "room"), this.ticks = make("div", "ticks"));
    this.room.style.height = `${count * ROW}px`;
    this.room.style.width = `${width + 4}ch`;
    el.onscroll = () => this.fill();
    el.onmousemove = (e) => { const k = this.at(e); near(k >= 0 ? this.of(k) : null); };
    el.onmouseleave = () => near(null);
    el.onclick = (e) => { const k = this.at(e); if (k >= 0) { this.cursor = k; choose(this.of(k), this); } };
    el.onkeydown = (e) => this.key(e);
    new ResizeObserver(() => this.fill()).observe(el);
    links.lists.push(this);
    this.fill();
  }
  at(e) {
    const row = e.target.closest(".row");
    return row ? +row.dataset.k : -1;
  }
  key(e) {
    const by = { ArrowDown: 1, ArrowUp: -1, PageDown: 20, PageUp: -20, Home: -1e9, End: 1e9 }[e.key];
    if (by) {
      this.cursor = Math.max(0, Math.min(this.count - 1, this.cursor + by));
      this.show(this.cursor);
      near(this.of(this.cursor));
      this.mark();
    } else if (e.key === "Enter" && this.cursor >= 0) choose(this.of(this.cursor), this);
    else return;
    e.preventDefault();
  }
  show(k) {
    const top = k * ROW, { scrollTop, clientHeight } = this.el;
    if (top < scrollTop || top > scrollTop + clientHeight - 2 * ROW)
      this.el.scrollTop = top - clientHeight / 3;
  }
  reveal() {
    if (!links.chosen) return;
    for (let k = 0; k < this.count; k++) if (marks(links.chosen, this.of(k))) return this.show(k);
  }
  fill() {
    const all = links.printed;  // then so many rows are there, seen or not
    const first = all ? 0 : Math.max(0, Math.floor(this.el.scrollTop / ROW) - 10);
    const last = Math.min(this.count, all || first + Math.ceil((this.el.clientHeight || 600) / ROW) + 20);
    for (const [k, row] of this.rows) if (k < first || k >= last) { row.remove(); this.rows.delete(k); }
    for (let k = first; k < last; k++) if (!this.rows.has(k)) {
      const row = make("div", "row");
      row.dataset.k = k;
      row.style.top = `${k * ROW}px`;
      row.setAttribute("role", "option");
      this.draw(row, k);
      row.kind = row.className;
      this.rows.set(k, row);
    }
    const order = [...this.rows.entries()].sort((a, b) => a[0] - b[0]).map((x) => x[1]);
    if (order.some((row, k) => this.room.children[k] !== row)) this.room.replaceChildren(...order);
    this.mark();
  }
  mark() {
    for (const [k, row] of this.rows) {
      const at = this.of(k), chosen = marks(links.chosen, at);
      row.className = row.kind + (marks(links.near, at) ? " near" : "") + (chosen ? " chosen" : "")
        + (k === this.cursor && document.activeElement === this.el ? " cursor" : "");
      row.setAttribute("aria-selected", chosen ? "true" : "false");
    }
  }
}
function list(el, lines, of, label, kind) {
  const width = Math.min(2000, lines.reduce((w, x) => Math.max(w, x[0].length), 0));
  const of_ = typeof of === "string" ? (k) => [of, lines[k][1]] : of;
  return new List(el, lines.length, (row, k) => {
    if (kind) row.classList.add(...kind(k));
    coloured(row, lines[k][0]);
  }, of_, width, label);
}
