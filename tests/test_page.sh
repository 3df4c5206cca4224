#!/bin/sh
# The pages of fa2-tune report in headless Chromium, as axe finds them (report_browser.py); skipped, with the reason,
# where there is no Chromium or no axe. Usage: test_page.sh FA2_TUNE REPORT_DATABASE [MEASUREMENTS]
set -eu
[ $# -ge 2 ] || {
    echo "usage: test_page.sh FA2_TUNE REPORT_DATABASE [MEASUREMENTS]" >&2
    exit 2
}
browser=$(realpath "$(dirname "$0")/report_browser.py")
python3 "$browser"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"$2" here.db "${3:-120}"
"$2" there.db "${3:-120}" 1.5 "another card"
FA2_SHARE='' "$1" report --db here.db --against there.db --html both.html
python3 "$browser" both.html
