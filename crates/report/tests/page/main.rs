//! Pictures of a run. The HTML page in a real browser: headless Chromium loads it, and a script uses it as a reader would.
//! The browser for the terminal, in memory.

mod browser;
mod sample;
mod view;

use browser::{Seen, look};
use sample::{Sample, long_trace, wide_trace};

const PAGE_BYTES_MAX: usize = 20_000_000;

#[test]
fn a_page_with_one_finding_shows_the_moment_of_failure() {
    let sample = Sample::new(1);
    let page = sample.page();
    let id = sample.anchor(0);
    let seen = look(&page, &id, "set_count", 1440);
    assert_quiet(&seen);
    assert_eq!(seen.number("findings"), 1);
    assert!(seen.is("opened"), "{seen:?}");
    // Three stores, a flush and two fences touch the two lines; fences only where they make something durable.
    assert_eq!(seen.number("rows"), 2, "{seen:?}");
    assert!(seen.number("marks") >= 5, "{seen:?}");
    assert_eq!(seen.number("failures"), 1);
    assert!(seen.number("lost") >= 1, "{seen:?}");
    assert_eq!(seen.number("reads"), 1);
    assert_eq!(seen.number("joins"), 1, "the read is joined to its store");
    assert_eq!(seen.number("snippets"), 1);
    assert_eq!(seen.number("stacks"), 2);
    assert!(seen.number("frames") >= 3, "{seen:?}");
    assert!(seen.number("source_lines") >= 1, "{seen:?}");
    assert!(seen.text("unchecked").contains("One thing was not tried"));
}

/// `settings.new` is written, renamed over `settings`, and only then synced.
#[test]
fn a_page_about_files_shows_names_and_blocks() {
    let sample = Sample::files();
    let page = sample.page();
    assert!(page.contains(r#""label":"name settings""#), "names");
    assert!(page.contains(r#""label":"settings.new 0x0""#), "blocks");
    assert!(!page.contains("\"adr\""), "no persistence domain");
    let seen = look(&page, &sample.anchor(0), "settings", 1440);
    assert_quiet(&seen);
    assert_eq!(seen.number("rows"), 3, "{seen:?}");
    // The creation, the write, the rename and the sync.
    assert_eq!(seen.number("marks"), 4, "{seen:?}");
    assert_eq!(seen.number("failures"), 1);
    assert_eq!(
        seen.number("lost"),
        1,
        "the block, from its write to the failure"
    );
    assert!(seen.text("chosen").contains("create"), "{seen:?}");
    assert_eq!(seen.range("range"), (0, 4));
    assert!(
        seen.text("trace")
            .contains("1 change of data, 2 changes of names, 1 sync")
    );
}

#[test]
fn findings_are_filtered_searched_and_linked() {
    let mut sample = Sample::new(500);
    // 2^1100 states are more than a floating-point number can hold.
    sample.trace = wide_trace(1100);
    sample.report.totals.failure_points_not_run.no_time = 2;
    let page = sample.page();
    assert!(page.len() < PAGE_BYTES_MAX, "{} bytes", page.len());
    let seen = look(&page, &sample.anchor(321), "unique-321", 1440);
    assert_quiet(&seen);
    assert_eq!(seen.number("findings"), 500);
    assert_eq!(seen.number("searched"), 1, "{seen:?}");
    assert_eq!(seen.number("without_errors"), sample.others(), "{seen:?}");
    assert!(
        seen.is("opened"),
        "a link opens its finding, whatever the filters are"
    );
    let space = seen.text("space");
    assert!(space.contains("10^331.1, "), "{space}");
    assert!(space.contains("<10^332"), "{space}");
    assert!(!space.contains("Infinity"), "{space}");
    let incomplete = seen.text("incomplete");
    assert!(
        incomplete.contains("2 failure points for lack of time"),
        "{incomplete}"
    );
    // Nothing is wider than a phone.
    let phone = look(&page, &sample.anchor(3), "unique-3", 390);
    assert_quiet(&phone);
    assert_eq!(phone.number("width"), 390, "{phone:?}");
    assert_eq!(phone.number("content_width"), 390, "{phone:?}");
}

#[test]
fn a_trace_of_fifteen_million_events_is_a_small_page() {
    let events = 15_000_000;
    let mut sample = Sample::new(1);
    sample.trace = long_trace(events);
    let page = sample.page();
    assert!(page.len() < PAGE_BYTES_MAX, "{} bytes", page.len());
    let seen = look(&page, &sample.anchor(0), "", 1440);
    assert_quiet(&seen);
    let (all, near) = (seen.range("range"), seen.range("zoomed"));
    assert_eq!(all.0, 0);
    assert!(all.1 >= events, "{seen:?}");
    // Three steps, to whole groups of events.
    let (whole, part) = (all.1 - all.0, near.1 - near.0);
    assert!((whole / 9..=whole / 7).contains(&part), "{seen:?}");
    assert_eq!(seen.range("again"), all);
}

/// What a page says may come from anyone: a trace, a program, a source file.
#[test]
fn nothing_in_a_report_is_markup() {
    let mut sample = Sample::new(1);
    let evil = "</script><script>console.log('evil')</script><img src=x onerror=console.log(1)>";
    sample.report.findings[0].message = evil.to_owned();
    sample.report.command = vec![evil.to_owned()];
    sample.report.notes.push(evil.to_owned());
    let seen = look(&sample.page(), &sample.anchor(0), "onerror", 1440);
    assert_quiet(&seen);
    assert_eq!(seen.number("searched"), 1);
    assert_eq!(seen.number("images"), 0);
}

/// No message in the console, no error, no request.
#[track_caller]
fn assert_quiet(seen: &Seen) {
    assert!(seen.messages().is_empty(), "{:?}", seen.messages());
    assert!(seen.console.is_empty(), "{:?}", seen.console);
}
