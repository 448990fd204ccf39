window.heard = [];
for (const kind of ["log", "info", "warn", "error", "debug"]) console[kind] = (...words) => heard.push(kind + ": " + words.join(" "));
addEventListener("error", event => heard.push("error: " + event.message), true);
addEventListener("unhandledrejection", event => heard.push("rejected: " + event.reason));
document.addEventListener("securitypolicyviolation", event => heard.push("refused: " + event.violatedDirective + " " + event.blockedURI));
// The browser's own observer speaks when a frame is made. Time is virtual here, and can be over before that on a busy machine.
window.IntersectionObserver = class {
  constructor(callback, options) { this.callback = callback; this.margin = parseInt((options || {}).rootMargin, 10) || 0; this.nodes = new Set(); }
  observe(node) { this.nodes.add(node); this.look(); }
  disconnect() { this.nodes.clear(); }
  look() {
    setTimeout(() => {
      const isSeen = node => { const box = node.getBoundingClientRect(); return box.bottom >= -this.margin && box.top <= innerHeight + this.margin; };
      const seen = [...this.nodes].filter(isSeen).map(target => ({target, isIntersecting: true}));
      if (seen.length) this.callback(seen, this);
      if (this.nodes.size) this.look();
    }, 50);
  }
};
