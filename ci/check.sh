#!/bin/sh
# Runs powerfail check in a CI system, and writes its result in the formats that the system shows.
#
# POWERFAIL_ARGUMENTS  arguments of `powerfail check`, quoted as for a shell; without them powerfail.toml decides
# POWERFAIL_BASELINE   a report in JSON: only findings that are not in it count. A file that does not exist is ignored
# POWERFAIL_CHANGED_SINCE  a revision, or the output directory of an earlier run: what is new since is tried first
# POWERFAIL_REPORTS    the directory of the reports; by default powerfail-reports
#
# The exit code is that of `powerfail check`.
set -eu

reports=${POWERFAIL_REPORTS:-powerfail-reports}
mkdir -p "$reports"

eval "set -- ${POWERFAIL_ARGUMENTS:-}"
set -- --format "json=$reports/report.json" --format "sarif=$reports/report.sarif" \
    --format "junit=$reports/junit.xml" --format "gitlab=$reports/code-quality.json" \
    --html "$reports/report.html" "$@"
if [ -n "${GITHUB_ACTIONS:-}" ]; then
    set -- --format github --format "text=$reports/report.txt" "$@"
fi
if [ -n "${POWERFAIL_BASELINE:-}" ]; then
    if [ -e "$POWERFAIL_BASELINE" ]; then
        set -- --baseline "$POWERFAIL_BASELINE" "$@"
    else
        echo "note: there is no $POWERFAIL_BASELINE: all findings count" >&2
    fi
fi
if [ -n "${POWERFAIL_CHANGED_SINCE:-}" ]; then
    set -- --changed-since "$POWERFAIL_CHANGED_SINCE" "$@"
fi

status=0
powerfail check "$@" || status=$?

case $status in
    0) summary="powerfail: no new findings" ;;
    1) summary="powerfail: findings; see report.html in $reports" ;;
    5) summary="powerfail: nothing was checked" ;;
    *) summary="powerfail: the check failed (exit code $status)" ;;
esac
echo "$summary"
if [ -n "${GITHUB_STEP_SUMMARY:-}" ]; then
    {
        echo "### $summary"
        if [ -s "$reports/report.txt" ]; then
            echo '```text'
            cat "$reports/report.txt"
            echo '```'
        fi
    } >> "$GITHUB_STEP_SUMMARY"
fi
exit "$status"
