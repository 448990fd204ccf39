window.heard = [];
for (const kind of ["log", "info", "warn", "error", "debug"]) console[kind] = (...words) => heard.push(kind + ": " + words.join(" "));
addEventListener("error", event => heard.push("error: " + event.message), true);
addEventListener("unhandledrejection", event => heard.push("rejected: " + event.reason));
document.addEventListener("securitypolicyviolation", event => heard.push("refused: " + event.violatedDirective + " " + event.blockedURI));
