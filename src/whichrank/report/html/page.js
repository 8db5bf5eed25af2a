"use strict";
// Texts are put on the page as text only (textContent, fillText): what comes from logs and dumps is never markup.
(() => {
  const root = document.documentElement;
  const byId = (id) => document.getElementById(id);

  // ---- wait-for graph: a node leads to where its ranks stand
  for (const node of document.querySelectorAll(".node")) {
    const open = () => {
      byId("stands").open = true;
      const entry = byId("node-" + node.dataset.node);
      entry.scrollIntoView({ block: "nearest" });
      entry.focus({ preventScroll: true });
    };
    node.addEventListener("click", open);
    node.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); open(); } });
  }
  const graph = document.querySelector("#waits .wide"), top = document.querySelector(".node");
  if (graph && top) graph.scrollLeft += top.getBoundingClientRect().left + top.getBoundingClientRect().width / 2 - graph.getBoundingClientRect().left - graph.clientWidth / 2;

  // ---- grid
  if (!byId("data")) return;
  const data = JSON.parse(byId("data").textContent);
  const culprits = new Set(data.culprits);
  const says = {
    D: "ended", W: "made it and waits in it", Q: "made it; an older call of this rank is unfinished", A: "did not make it",
    G: "the ring no longer holds it", N: "no dump of this rank", M: "made it; only unfinished calls were dumped", U: "not known: nothing reaches back that far",
  };
  if (!data.hang) says.A = "did not make it yet";
  // What tells most comes first where many ranks share a line of pixels.
  const telling = "AWQNUGMD";
  const canvas = byId("cells"), stage = byId("stage"), tip = byId("tip");
  const pen = canvas.getContext("2d");
  const AXIS = 26;
  let group, rows, columns, gutter, cw, ch, ox, oy, at = null, active = false, colours = {}, hatch, width = 0, height = 0;

  const spread = (runs) => { const all = []; for (const [value, count] of runs) for (let i = 0; i < count; i++) all.push(value); return all; };
  const hostOf = (rank) => { const run = data.host.find(([first, count]) => rank >= first && rank < first + count); return run ? data.hosts[run[2]] : ""; };
  const named = (ranks) => {
    const runs = [];
    for (const rank of ranks) { const last = runs[runs.length - 1]; if (last && rank === last[1] + 1) last[1] = rank; else runs.push([rank, rank]); }
    const step = runs.length > 4 && runs.every(([a, b], i) => a === b && (!i || a - runs[i - 1][0] === runs[1][0] - runs[0][0])) ? runs[1][0] - runs[0][0] : 0;
    if (step) return `${runs[0][0]}, ${runs[1][0]} … ${runs[runs.length - 1][0]} (every ${step})`;
    const shown = runs.slice(0, 6).map(([a, b]) => a === b ? `${a}` : b === a + 1 ? `${a}, ${b}` : `${a}-${b}`).join(", ");
    return runs.length > 6 ? `${shown} … (${ranks.length.toLocaleString("en")} ranks)` : shown;
  };

  function parse(pattern) {
    const runs = [];
    let start = 0;
    for (const [, count, letter] of pattern.matchAll(/(\d+)([A-Z])/g)) { runs.push([start, +count, letter]); start += +count; }
    return runs;
  }
  const stateIn = (runs, column) => { for (const [start, count, letter] of runs) if (column < start + count) return letter; return "U"; };

  function load(number) {
    group = data.groups[number];
    if (!group.ready) {
      group.members = [];
      for (const [first, count] of group.ranks) for (let i = 0; i < count; i++) group.members.push(first + i);
      group.runs = group.patterns.map(parse);
      group.of = spread(group.rows);
      group.cols = spread(group.columns);
      group.odds = new Map();
      group.odd.forEach(([member, column, call], i) => {
        if (!group.odds.has(member)) group.odds.set(member, new Map());
        // Marked: what must not differ, and the same call from another line. Sizes of an all-to-all differ by right.
        const wrong = group.differ.includes(i), [a, b] = [data.calls[call], data.calls[group.cols[column]]];
        group.odds.get(member).set(column, [call, wrong, wrong || (a[0] === b[0] && a[1] === b[1])]);
      });
      group.marked = [...group.odds.values()].some((row) => [...row.values()].some(([, , marked]) => marked));
      group.ready = true;
    }
    columns = group.cols.length;
    arrange();
    const cut = group.earlier ? ` Shown: #${group.lo} to #${group.lo + columns - 1}, the window around the hang; ${group.earlier.toLocaleString("en")} earlier ones are left out.` : "";
    const more = data.left ? ` ${data.left.toLocaleString("en")} more groups are left out.` : "";
    byId("note").textContent = `${group.note}.${cut}${more}${group.more_odd ? ` ${group.more_odd.toLocaleString("en")} more calls differ from rank to rank.` : ""}`;
    for (const item of document.querySelectorAll(".legend .rare")) item.classList.toggle("shown", item.dataset.of === "odd" ? group.marked : group.patterns.some((p) => p.includes(item.dataset.of)));
    list();
  }

  function arrange() {
    const all = group.members.map((rank, member) => ({ ranks: [rank], member, pattern: group.of[member], bad: culprits.has(rank) }));
    if (byId("fold").checked) {
      const folded = new Map();
      for (const row of all) {
        const same = folded.get(row.pattern);
        if (same) same.ranks.push(row.ranks[0]); else folded.set(row.pattern, row);
      }
      rows = [...folded.values()].sort((a, b) => b.bad - a.bad || a.ranks[0] - b.ranks[0]);
    } else rows = all;
    for (const row of rows) row.name = (rows.length < 400 || row.ranks.length > 1) ? named(row.ranks) : String(row.ranks[0]);
    // As tall as it needs to be; the page came with the height of the first group.
    stage.style.height = `${Math.max(120, Math.min(440, 60 + 26 * rows.length))}px`;
    fit();
  }

  function fit() {
    measure();
    pen.font = "13px system-ui, sans-serif";
    const widest = Math.max(...[...rows.slice(0, 400), ...rows.filter((row) => row.bad)].map((row) => pen.measureText((row.bad ? "◆ " : "") + row.name).width), 30);
    gutter = Math.ceil(Math.min(widest + 22, width * 0.4));
    const room = height - AXIS - 6;
    ch = Math.min(26, room / rows.length);
    if (ch < 12 && rows.length < 60) ch = 12;
    cw = Math.max(2, Math.min(24, (width - gutter - 12) / Math.min(columns, 48)));
    ox = (width - gutter - 12) - columns * cw;
    if (ox > 0) ox = 0;
    oy = 0;
    at = null;
    tip.hidden = true;
    draw();
  }

  function measure() {
    const box = canvas.getBoundingClientRect(), ratio = devicePixelRatio || 1;
    width = box.width; height = box.height;
    canvas.width = Math.round(width * ratio); canvas.height = Math.round(height * ratio);
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  }

  function theme() {
    const style = getComputedStyle(root);
    for (const name of ["paper", "card", "ink", "soft", "line", "link", "bad", "bad-paper", "done", "wait", "queue", "none", "nodump", "gone", "odd"]) colours[name] = style.getPropertyValue("--" + name).trim();
    const tile = document.createElement("canvas");
    tile.width = tile.height = 6;
    const brush = tile.getContext("2d");
    brush.fillStyle = colours.paper; brush.fillRect(0, 0, 6, 6);
    brush.strokeStyle = colours.nodump; brush.lineWidth = 1.6;
    brush.beginPath(); brush.moveTo(-2, 8); brush.lineTo(8, -2); brush.moveTo(-5, 5); brush.lineTo(5, -5); brush.moveTo(1, 11); brush.lineTo(11, 1); brush.stroke();
    hatch = pen.createPattern(tile, "repeat");
  }

  const fillOf = (letter, small) => ({ D: colours.done, W: colours.wait, Q: colours.queue, A: small && data.hang ? colours.bad : colours.none, G: colours.gone, N: hatch, M: colours.none, U: colours.gone })[letter];

  function draw() {
    theme();
    pen.fillStyle = colours.paper; pen.fillRect(0, 0, width, height);
    pen.save();
    pen.beginPath(); pen.rect(0, AXIS, width, height - AXIS); pen.clip();
    if (ch >= 3) wide(); else narrow();
    pen.restore();
    axis();
    if (at && active) ring();
  }

  function wide() {
    const first = Math.max(0, Math.floor(-oy / ch)), last = Math.min(rows.length, Math.ceil((height - AXIS - oy) / ch));
    pen.font = `${Math.min(13, Math.max(9, ch - 2))}px system-ui, sans-serif`;
    pen.textBaseline = "middle";
    const every = Math.max(1, Math.ceil(13 / ch));
    for (let r = first; r < last; r++) {
      const row = rows[r], y = AXIS + oy + r * ch, h = ch - (ch > 5 ? 1.5 : ch > 3.5 ? .5 : 0);
      if (row.bad) { pen.fillStyle = colours["bad-paper"]; pen.fillRect(0, y, width, ch); }
      pen.save();
      pen.beginPath(); pen.rect(gutter, AXIS, width - gutter, height - AXIS); pen.clip();
      cells(group.runs[row.pattern], y, h);
      odd(row, y, h);
      pen.restore();
      if (r % every && !row.bad) continue;
      pen.fillStyle = row.bad ? colours.bad : colours.ink;
      pen.textAlign = "right";
      pen.fillText(clipped((row.bad ? "◆ " : "") + row.name, gutter - 14), gutter - 8, y + ch / 2);
    }
  }

  function clipped(text, room) {
    if (pen.measureText(text).width <= room) return text;
    while (text.length > 1 && pen.measureText(text + "…").width > room) text = text.slice(0, -1);
    return text + "…";
  }

  function cells(runs, y, h) {
    const small = cw < 7 || h < 7;
    for (const [start, count, letter] of runs) {
      const from = Math.max(start, Math.floor(-ox / cw)), to = Math.min(start + count, Math.ceil((width - gutter - ox) / cw));
      if (to <= from) continue;
      pen.fillStyle = fillOf(letter, small);
      if (small) { pen.fillRect(gutter + ox + from * cw, y, (to - from) * cw - (cw > 4 ? .5 : 0), h); continue; }
      for (let c = from; c < to; c++) {
        const x = gutter + ox + c * cw, w = cw - 1.5;
        pen.fillStyle = fillOf(letter, false);
        pen.fillRect(x, y, w, h);
        mark(letter, x, y, w, h);
      }
    }
  }

  // States differ in shape as well as in colour.
  function mark(letter, x, y, w, h) {
    const mx = x + w / 2, my = y + h / 2, r = Math.min(w, h, 16) / 2;
    if (letter === "A" && !data.hang) {
      pen.strokeStyle = colours.line; pen.lineWidth = 1; pen.strokeRect(x + .5, y + .5, w - 1, h - 1);
    } else if (letter === "A") {
      pen.strokeStyle = colours.bad; pen.lineWidth = 1.5;
      pen.strokeRect(x + .75, y + .75, w - 1.5, h - 1.5);
      pen.beginPath(); pen.moveTo(mx - r * .5, my - r * .5); pen.lineTo(mx + r * .5, my + r * .5); pen.moveTo(mx + r * .5, my - r * .5); pen.lineTo(mx - r * .5, my + r * .5); pen.stroke();
    } else if (letter === "W" || letter === "G") {
      pen.fillStyle = letter === "W" ? colours.paper : colours.soft;
      pen.beginPath(); pen.arc(mx, my, letter === "W" ? r * .42 : Math.max(1, r * .2), 0, 7); pen.fill();
    } else if (letter === "M") {
      pen.strokeStyle = colours.done; pen.lineWidth = 1.5; pen.strokeRect(x + .75, y + .75, w - 1.5, h - 1.5);
    }
  }

  function odd(row, y, h) {
    const mine = group.odds.get(row.member);
    if (!mine) return;
    for (const [column, [, wrong, marked]] of mine) {
      if (!marked) continue;
      const x = gutter + ox + column * cw, w = Math.max(2, cw - 1.5), size = Math.min(w, h) * (wrong ? 1 : .5);
      pen.fillStyle = colours.odd;
      pen.beginPath(); pen.moveTo(x + w - size, y); pen.lineTo(x + w, y); pen.lineTo(x + w, y + size); pen.fill();
    }
  }

  // Many ranks on one line of pixels: the one that tells most is drawn.
  function narrow() {
    if (!group.weight) group.weight = group.runs.map((runs) => Math.min(...runs.map(([, , letter]) => telling.indexOf(letter))));
    for (let y = AXIS; y < height; y++) {
      const from = Math.max(0, Math.floor((y - AXIS - oy) / ch)), to = Math.min(rows.length, Math.max(from + 1, Math.ceil((y + 1 - AXIS - oy) / ch)));
      let best = null;
      for (let r = from; r < to; r++) {
        const row = rows[r];
        if (!best || row.bad > best.bad || (row.bad === best.bad && group.weight[row.pattern] < group.weight[best.pattern])) best = row;
        if (best.bad) break;
      }
      if (!best) continue;
      for (const [start, count, letter] of group.runs[best.pattern]) {
        pen.fillStyle = fillOf(letter, true);
        const x = Math.max(gutter, gutter + ox + start * cw);
        const end = Math.min(width, gutter + ox + (start + count) * cw);
        if (end > x) pen.fillRect(x, y, end - x, 1);
      }
    }
    pen.font = "13px system-ui, sans-serif"; pen.textBaseline = "middle"; pen.textAlign = "right";
    const step = 10 ** Math.ceil(Math.log10(28 / ch));
    pen.fillStyle = colours.soft;
    for (let r = Math.ceil(Math.max(0, -oy / ch) / step) * step; r < rows.length; r += step) {
      const y = AXIS + oy + r * ch;
      if (y < height && y > AXIS && !rows.some((row, other) => row.bad && Math.abs(other - r) * ch < 14)) pen.fillText(rows[r].name, gutter - 8, Math.max(AXIS + 8, y));
    }
    pen.fillStyle = colours.bad;
    rows.forEach((row, r) => {
      if (!row.bad) return;
      const y = AXIS + oy + (r + .5) * ch;
      if (y < AXIS || y > height) return;
      pen.fillRect(gutter, y - 1, width - gutter, 2);
      pen.fillStyle = colours.paper; pen.fillRect(0, y - 8, gutter - 2, 16); pen.fillStyle = colours.bad;
      pen.fillText("◆ " + row.name, gutter - 8, Math.max(AXIS + 8, y));
    });
  }

  function axis() {
    pen.fillStyle = colours.paper; pen.fillRect(0, 0, width, AXIS);
    pen.strokeStyle = colours.line; pen.lineWidth = 1;
    pen.beginPath(); pen.moveTo(0, AXIS - .5); pen.lineTo(width, AXIS - .5); pen.moveTo(gutter - 3.5, 0); pen.lineTo(gutter - 3.5, height); pen.stroke();
    pen.font = "12px system-ui, sans-serif"; pen.textBaseline = "middle"; pen.textAlign = "center";
    const label = `#${group.lo + columns}`, need = pen.measureText(label).width + 14;
    let step = 1;
    for (const factor of [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000]) { step = factor; if (factor * cw >= need) break; }
    for (let seq = Math.ceil(group.lo / step) * step; seq < group.lo + columns; seq += step) {
      const x = gutter + ox + (seq - group.lo + .5) * cw;
      if (x < gutter + need / 3 || x > width - need / 3) continue;
      pen.fillStyle = colours.soft;
      pen.fillText(`#${seq}`, x, AXIS / 2);
    }
    pen.textAlign = "left"; pen.fillStyle = colours.soft;
    pen.fillText(byId("fold").checked ? "ranks" : "rank", 8, AXIS / 2);
  }

  function ring() {
    const x = gutter + ox + at.c * cw, y = AXIS + oy + at.r * ch;
    if (x + cw < gutter || y + ch < AXIS) return;
    pen.strokeStyle = colours.ink; pen.lineWidth = 2;
    pen.strokeRect(x - 1.5, y - 1.5, Math.max(cw, 4) + 1.5, Math.max(ch, 4) + 1.5);
  }

  function describe(r, c) {
    const row = rows[r], letter = stateIn(group.runs[row.pattern], c), mine = group.odds.get(row.member);
    const own = mine && mine.get(c), call = data.calls[own ? own[0] : group.cols[c]];
    const host = row.ranks.length === 1 ? hostOf(row.ranks[0]) : "";
    const who = `rank${row.ranks.length > 1 ? "s" : ""} ${row.name}${host ? ` on ${host}` : ""}${row.bad ? " (culprit)" : ""}`;
    const what = [`#${group.lo + c}`, call ? call[0] : "", call ? call[1] : ""].filter(Boolean).join(" ");
    const lines = [who, `${what}: ${says[letter]}`];
    if (own && own[1]) { const other = data.calls[group.cols[c]]; if (other) lines.push(`the others called ${other[0]} ${other[1]}`); }
    if (call && call[2]) lines.push(own || "DWQ".includes(letter) ? `at ${call[2]}` : `the others at ${call[2]}`);
    lines.push(group.says[row.pattern]);
    return lines.join("\n");
  }

  function show(r, c) {
    tip.textContent = describe(r, c);
    tip.hidden = false;
    // Below the row, so that it covers neither the cell nor its neighbours; it may reach beyond the grid.
    const x = gutter + ox + (c + .5) * cw - 30;
    tip.style.left = `${Math.max(4, Math.min(x, width - tip.offsetWidth - 4))}px`;
    tip.style.top = `${Math.max(AXIS, AXIS + oy + (r + 1) * ch) + 8}px`;
  }

  function cellAt(event) {
    const box = canvas.getBoundingClientRect();
    const c = Math.floor((event.clientX - box.left - gutter - ox) / cw), r = Math.floor((event.clientY - box.top - AXIS - oy) / ch);
    return event.clientX - box.left > gutter && event.clientY - box.top > AXIS && r >= 0 && r < rows.length && c >= 0 && c < columns ? { r, c } : null;
  }

  function zoom(factor, x, y) {
    const fx = (x - gutter - ox) / cw, fy = (y - AXIS - oy) / ch;
    cw = Math.max(.5, Math.min(60, cw * factor));
    ch = Math.max(Math.min(.05, (height - AXIS) / rows.length), Math.min(40, ch * factor));
    ox = x - gutter - fx * cw; oy = y - AXIS - fy * ch;
    keep(); draw();
  }

  function keep() {
    const w = width - gutter - 12, h = height - AXIS - 6;
    ox = columns * cw <= w ? 0 : Math.min(0, Math.max(w - columns * cw, ox));
    oy = rows.length * ch <= h ? 0 : Math.min(0, Math.max(h - rows.length * ch, oy));
  }

  function go(r, c) {
    at = { r: Math.max(0, Math.min(rows.length - 1, r)), c: Math.max(0, Math.min(columns - 1, c)) };
    active = true;
    const x = ox + at.c * cw, y = oy + at.r * ch;
    if (x < 0) ox -= x; else if (x + cw > width - gutter - 12) ox -= x + cw - (width - gutter - 12);
    if (y < 0) oy -= y; else if (y + ch > height - AXIS - 6) oy -= y + ch - (height - AXIS - 6);
    keep(); draw(); show(at.r, at.c);
  }

  function hang(row) {  // the column at which a row stops: what it waits in, or the first call that it did not make
    const runs = group.runs[row.pattern];
    const stop = runs.find(([, , letter]) => letter === "W") || runs.find(([, , letter]) => letter === "A") || runs.find(([, , letter]) => letter === "Q");
    return stop ? stop[0] : columns - 1;
  }

  function goTo(rank) {
    let number = data.groups.indexOf(group);
    const has = (g) => g.ranks.some(([first, count]) => rank >= first && rank < first + count);
    if (!has(group)) number = data.groups.findIndex(has);
    if (number < 0) { byId("note").textContent = `No group that is shown here has rank ${rank}.`; return; }
    if (data.groups[number] !== group) { byId("group").value = String(number); choose(number); }
    const r = rows.findIndex((row) => row.ranks.includes(rank));
    if (ch < 8) { ch = 14; oy = height / 2 - r * ch; }
    go(r, hang(rows[r]));
  }

  canvas.addEventListener("focus", () => { active = true; if (at) { draw(); show(at.r, at.c); } });
  canvas.addEventListener("blur", () => { active = false; tip.hidden = true; draw(); });
  canvas.addEventListener("wheel", (event) => {
    if (document.activeElement !== canvas && !event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const box = canvas.getBoundingClientRect();
    if (event.shiftKey) { ox -= event.deltaY || event.deltaX; keep(); draw(); return; }
    zoom(Math.exp(-event.deltaY * .0015), event.clientX - box.left, event.clientY - box.top);
  }, { passive: false });
  let drag = null;
  canvas.addEventListener("pointerdown", (event) => { drag = { x: event.clientX, y: event.clientY, moved: false }; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointermove", (event) => {
    if (drag) {
      if (drag.moved || Math.abs(event.clientX - drag.x) + Math.abs(event.clientY - drag.y) > 3) {
        ox += event.clientX - drag.x; oy += event.clientY - drag.y;
        drag = { x: event.clientX, y: event.clientY, moved: true };
        tip.hidden = true; keep(); draw();
      }
      return;
    }
    const cell = cellAt(event);
    if (cell) show(cell.r, cell.c); else if (!(at && active)) tip.hidden = true;
  });
  canvas.addEventListener("pointerup", (event) => { const cell = cellAt(event); if (drag && !drag.moved && cell) go(cell.r, cell.c); drag = null; });
  canvas.addEventListener("pointerleave", () => { if (!(at && active)) tip.hidden = true; else show(at.r, at.c); });
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0], PageUp: [-10, 0], PageDown: [10, 0] }[event.key];
    const start = () => at || { r: Math.max(0, rows.findIndex((row) => row.bad)), c: hang(rows[Math.max(0, rows.findIndex((row) => row.bad))]) };
    if (move && event.shiftKey) { oy -= move[0] * ch * 4; ox -= move[1] * cw * 4; keep(); draw(); }
    else if (move) { const from = start(); if (at) go(from.r + move[0], from.c + move[1]); else go(from.r, from.c); }
    else if (event.key === "Home") go(start().r, 0);
    else if (event.key === "End") go(start().r, columns - 1);
    else if (event.key === "+" || event.key === "=") zoom(1.4, width / 2, height / 2);
    else if (event.key === "-") zoom(1 / 1.4, width / 2, height / 2);
    else if (event.key === "0") fit();
    else if (event.key === "c") { if (data.culprits.length) goTo(data.culprits[0]); }
    else if (event.key === "Escape") { at = null; tip.hidden = true; draw(); }
    else return;
    event.preventDefault();
  });
  byId("in").addEventListener("click", () => zoom(1.5, gutter + (width - gutter) / 2, height / 2));
  byId("out").addEventListener("click", () => zoom(1 / 1.5, gutter + (width - gutter) / 2, height / 2));
  byId("fit").addEventListener("click", fit);
  byId("fold").addEventListener("change", arrange);
  byId("rank").addEventListener("change", () => { const rank = parseInt(byId("rank").value, 10); if (rank >= 0) goTo(rank); });

  // The grid as a table, for those who cannot see it.
  function list() {
    const table = document.createElement("table"), head = table.createTHead().insertRow(), body = table.createTBody();
    for (const name of ["ranks", "how many", "where they stand"]) { const cell = document.createElement("th"); cell.scope = "col"; cell.textContent = name; head.append(cell); }
    const of = group.patterns.map(() => []);
    group.of.forEach((pattern, member) => of[pattern].push(group.members[member]));
    of.slice(0, 500).forEach((ranks, pattern) => {
      const row = body.insertRow();
      row.insertCell().textContent = `${named(ranks)}${culprits.has(ranks[0]) ? " (culprit)" : ""}`;
      row.insertCell().textContent = ranks.length.toLocaleString("en");
      row.insertCell().textContent = group.says[pattern];
    });
    byId("list").replaceChildren(table);
  }

  const select = byId("group");
  for (const [label, open] of [["ranks wait in these", true], ["all calls ended", false]]) {
    const part = document.createElement("optgroup");
    part.label = label;
    data.groups.forEach((each, number) => { if (each.open === open) part.append(new Option(`${each.name} · ranks ${each.whose}`, String(number))); });
    if (part.children.length) select.append(part);
  }
  function choose(number) {
    byId("fold").checked = data.groups[number].ranks.reduce((sum, [, count]) => sum + count, 0) > data.fold;
    load(number);
  }
  select.addEventListener("change", () => choose(+select.value));
  document.addEventListener("repaint", () => draw());
  new ResizeObserver(() => { if (rows && Math.abs(canvas.getBoundingClientRect().width - width) + Math.abs(canvas.getBoundingClientRect().height - height) > 1) { const keptAt = at; fit(); at = keptAt; draw(); } }).observe(stage);
  select.value = "0";
  choose(0);
})();
