"use strict";
// What every page has: light and dark, printing, commands to copy.
(() => {
  const root = document.documentElement;
  const byId = (id) => document.getElementById(id);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const repaint = () => document.dispatchEvent(new Event("repaint"));  // colours have changed

  // ---- light and dark
  const remembered = () => { try { return localStorage.getItem("whichrank-theme"); } catch { return null; } };
  if (remembered() === "dark" || remembered() === "light") root.dataset.theme = remembered();
  byId("theme").addEventListener("click", () => {
    const now = root.dataset.theme || (dark.matches ? "dark" : "light");
    root.dataset.theme = now === "dark" ? "light" : "dark";
    try { localStorage.setItem("whichrank-theme", root.dataset.theme); } catch { /* a page from a file may keep nothing */ }
    repaint();
  });
  dark.addEventListener("change", () => repaint());

  // On paper it is light, the canvas too.
  let onScreen = "";
  addEventListener("beforeprint", () => {
    for (const part of document.querySelectorAll("details.printed, #stands, #weighed details, .side details")) part.open = true;
    onScreen = root.dataset.theme || "";
    root.dataset.theme = "light";
    repaint();
  });
  addEventListener("afterprint", () => {
    if (onScreen) root.dataset.theme = onScreen; else delete root.dataset.theme;
    repaint();
  });

  // ---- commands to copy
  async function copy(text, from) {
    try { await navigator.clipboard.writeText(text); return true; } catch { /* not allowed here: select it instead */ }
    const range = document.createRange();
    range.selectNodeContents(from);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    try { return document.execCommand("copy"); } catch { return false; }
  }
  for (const button of document.querySelectorAll(".copy")) button.addEventListener("click", async () => {
    const from = button.previousElementSibling;
    button.textContent = (await copy(from.textContent, from)) ? "copied" : "selected";
    setTimeout(() => { button.textContent = "copy"; }, 1500);
  });
})();
