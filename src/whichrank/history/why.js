// Pictures are tabs; marks are walked by arrows, and what one of them says stands below.
(() => {
  const byId = (id) => document.getElementById(id);
  const tabs = [...document.querySelectorAll("[role=tab]")];
  const panels = tabs.map((tab) => byId(tab.getAttribute("aria-controls")));
  const note = byId("note");

  document.documentElement.classList.add("scripted");
  function choose(number, focus) {
    tabs.forEach((tab, at) => {
      tab.setAttribute("aria-selected", String(at === number));
      tab.tabIndex = at === number ? 0 : -1;
      panels[at].hidden = at !== number;
    });
    if (note) note.textContent = "";
    if (focus) tabs[number].focus();
  }
  tabs.forEach((tab, number) => {
    tab.addEventListener("click", () => choose(number));
    tab.addEventListener("keydown", (event) => {
      const to = { ArrowRight: (number + 1) % tabs.length, ArrowLeft: (number + tabs.length - 1) % tabs.length, Home: 0, End: tabs.length - 1 }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      choose(to, true);
    });
  });
  if (tabs.length) {
    document.querySelector(".tabs").hidden = false;
    choose(Math.max(0, tabs.findIndex((tab) => tab.hasAttribute("data-first"))));
  }

  const middle = (mark) => { const box = mark.getBoundingClientRect(); return [box.left + box.width / 2, box.top + box.height / 2]; };
  for (const plot of document.querySelectorAll(".times")) {
    const marks = [...plot.querySelectorAll(".mark")];
    const go = (to) => {
      if (!to) return;
      for (const mark of marks) mark.setAttribute("tabindex", mark === to ? "0" : "-1");
      to.focus();
      to.scrollIntoView({ block: "nearest", inline: "nearest" });
    };
    // The nearest mark of another row, the rows above or below counting more than what lies aside.
    const beyond = (from, sign) => {
      const [x, y] = middle(from);
      let best = null, least = Infinity;
      for (const mark of marks) {
        const [mx, my] = middle(mark), down = (my - y) * sign;
        if (down < 9) continue;
        const far = down * 4 + Math.abs(mx - x);
        if (far < least) { least = far; best = mark; }
      }
      return best;
    };
    plot.addEventListener("keydown", (event) => {
      const from = marks.indexOf(event.target.closest(".mark"));
      if (from < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
      const to = { ArrowRight: () => marks[from + 1], ArrowLeft: () => marks[from - 1], Home: () => marks[0], End: () => marks[marks.length - 1], ArrowDown: () => beyond(marks[from], 1), ArrowUp: () => beyond(marks[from], -1) }[event.key];
      if (!to) return;
      event.preventDefault();
      go(to());
    });
    const tell = (event) => { const mark = event.target.closest(".mark"); if (mark && note) note.textContent = mark.querySelector("title").textContent; };
    plot.addEventListener("focusin", tell);
    plot.addEventListener("pointerover", tell);
  }
})();
