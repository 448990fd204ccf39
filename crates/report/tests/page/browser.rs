//! Headless Chromium. It loads a page to which a script is added; the script uses the page and writes what it has seen into
//! it, and Chromium prints the result. Its clock is virtual: it advances when nothing is left to do.

use std::fs;
use std::process::{Command, Stdio};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

/// Hears what the page says, before any other script runs.
const EAR: &str = include_str!("ear.js");
/// Uses the page.
const READER: &str = include_str!("reader.js");
/// The page around it.
const AROUND: &str = "<!doctype html><link rel=icon href=data:,><style>body{margin:0}iframe{border:0}</style><script>
addEventListener('message', event => {
  const result = document.createElement('pre');
  result.id = 'result';
  result.textContent = event.data;
  document.body.append(result);
});</script>";
const RESULT: &str = "<pre id=\"result\">";

/// What the reader has seen.
#[derive(Debug)]
pub(crate) struct Seen {
    value: Value,
    /// What Chromium itself has put into the console.
    pub(crate) console: Vec<String>,
}

impl Seen {
    #[track_caller]
    pub(crate) fn number(&self, name: &str) -> u64 {
        self.value[name]
            .as_u64()
            .unwrap_or_else(|| panic!("{name}: {self:?}"))
    }

    pub(crate) fn is(&self, name: &str) -> bool {
        self.value[name] == true
    }

    pub(crate) fn text(&self, name: &str) -> &str {
        self.value[name].as_str().unwrap_or_default()
    }

    /// The events that the trace shows.
    #[track_caller]
    pub(crate) fn range(&self, name: &str) -> (u64, u64) {
        let end = |end: usize| self.value[name][end].as_u64();
        end(0)
            .zip(end(1))
            .unwrap_or_else(|| panic!("{name}: {self:?}"))
    }

    pub(crate) fn messages(&self) -> Vec<&str> {
        let messages = self.value["messages"].as_array();
        let messages = messages.into_iter().flatten();
        messages.filter_map(Value::as_str).collect()
    }
}

/// Loads a page in a window of some width, searches for a word, opens a finding by its link, and zooms.
pub(crate) fn look(page: &str, finding: &str, word: &str, width: u32) -> Seen {
    let folder = tempfile::tempdir().expect("a folder");
    let reader = READER.replace("FINDING", finding).replace("WORD", word);
    let page = page.replacen("<head>", &format!("<head><script>{EAR}</script>"), 1);
    let page = page.replacen("</body>", &format!("<script>{reader}</script></body>"), 1);
    fs::write(folder.path().join("page.html"), page).expect("a file");
    // A window cannot be as narrow as a phone, but a frame can.
    let around = format!("{AROUND}<iframe src=page.html width={width} height=900></iframe>");
    let file = folder.path().join("around.html");
    fs::write(&file, around).expect("a file");
    let output = Command::new("chromium")
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
        ])
        .args([
            "--no-first-run",
            "--disable-extensions",
            "--disable-dev-shm-usage",
        ])
        .args([
            "--virtual-time-budget=60000",
            "--enable-logging=stderr",
            "--dump-dom",
        ])
        .arg("--window-size=1440,900")
        .arg(format!(
            "--user-data-dir={}",
            folder.path().join("profile").display()
        ))
        .arg(format!("file://{}", file.display()))
        .env("HOME", folder.path())
        .stdin(Stdio::null())
        .output()
        .expect("chromium is installed");
    let (dom, log) = (text(&output.stdout), text(&output.stderr));
    let result = dom
        .split(RESULT)
        .nth(1)
        .and_then(|rest| rest.split('<').next());
    let result = result.unwrap_or_else(|| panic!("no result: {log}"));
    let result = BASE64_STANDARD.decode(result).expect("base64");
    let console = log.lines().filter(|line| line.contains("CONSOLE"));
    Seen {
        value: serde_json::from_slice(&result).expect("JSON"),
        console: console.map(str::to_owned).collect(),
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
