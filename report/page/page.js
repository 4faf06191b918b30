"use strict";
(() => {
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let kept = null;
  try { kept = localStorage.getItem("titan-theme"); } catch { /* a page from a file may have none */ }
  if (kept === "light" || kept === "dark") root.dataset.theme = kept;
  document.getElementById("theme").addEventListener("click", () => {
    const now = root.dataset.theme || (dark.matches ? "dark" : "light");
    root.dataset.theme = now === "dark" ? "light" : "dark";
    try { localStorage.setItem("titan-theme", root.dataset.theme); } catch { /* see above */ }
  });
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((d) => { d.open = true; }));

  // A page that titan serves follows its run; a page in a file asks nobody.
  if (!document.body.dataset.version) return;
  const follow = async () => {
    try {
      const now = await (await fetch("version", { cache: "no-store" })).text();
      if (now === document.body.dataset.version) return;
      const fresh = new DOMParser().parseFromString(await (await fetch("", { cache: "no-store" })).text(), "text/html");
      const open = new Set([...document.querySelectorAll("section:has(> details[open])")].map((s) => s.id));
      for (const id of ["main", "data"]) document.getElementById(id).replaceWith(fresh.getElementById(id));
      document.querySelector("nav").replaceWith(fresh.querySelector("nav"));
      document.querySelectorAll("section > details").forEach((d) => { d.open = open.has(d.parentElement.id); });
      document.body.dataset.version = fresh.body.dataset.version;
      document.title = fresh.title;
    } catch { /* titan has ended or is busy: the page stays as it is */ }
  };
  setInterval(follow, 2000);
})();
