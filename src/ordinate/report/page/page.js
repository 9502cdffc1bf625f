"use strict";
const $ = (id) => document.getElementById(id);
const make = (tag, properties = {}, ...inside) => {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...inside);
  return made;
};

// Light or dark, as the system has it until somebody says otherwise.
{
  const root = document.documentElement, button = $("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const name = () => { button.textContent = dark() ? "Light" : "Dark"; };
  // A file may have no storage: then the choice is forgotten.
  try { if (localStorage.ordinateTheme) root.dataset.theme = localStorage.ordinateTheme; } catch {}
  button.onclick = () => {
    root.dataset.theme = dark() ? "light" : "dark";
    try { localStorage.ordinateTheme = root.dataset.theme; } catch {}
    name();
  };
  system.addEventListener("change", name);
  button.hidden = false;
  name();
}

// On paper nothing can be opened.
addEventListener("beforeprint", () => {
  for (const one of document.querySelectorAll("details:not([open])")) {
    one.open = true;
    addEventListener("afterprint", () => { one.open = false; }, { once: true });
  }
});

function save(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
  make("a", { href: url, download: `${name}.svg` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

// A colour of this page on white paper, as a number: other programs know no variables.
function plain(name) {
  const probe = make("span");
  probe.style.cssText = `color-scheme: light; color: var(${name})`;
  document.body.append(probe);
  const colour = getComputedStyle(probe).color;
  probe.remove();
  return colour;
}

const FONT = "'DejaVu Sans', Arial";

// The drawing by itself: its colours, its font and its size are said in it.
function alone(svg) {
  const copy = svg.cloneNode(true);
  const [, , width, height] = svg.getAttribute("viewBox").split(/[ ,]+/);
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  if (!copy.hasAttribute("width")) {
    copy.setAttribute("width", width);
    copy.setAttribute("height", height);
  }
  copy.style.fontFamily ||= FONT;
  copy.style.color = plain("--ink");
  const text = new XMLSerializer().serializeToString(copy);
  return text.replace(/var\((--[\w-]+)[^()]*\)/g, (_, name) => (name.endsWith("font") ? FONT : plain(name)));
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-save]");
  if (!button) return;
  const drawings = [...button.closest("figure").querySelectorAll("svg")];
  save(button.dataset.save, alone(drawings.find((svg) => svg.checkVisibility()) ?? drawings[0]));
});
