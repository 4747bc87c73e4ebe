"""The server's own pages: the token, a full room, and what is not there. They ask for no file."""

from __future__ import annotations

from html import escape
from http import HTTPStatus

RETRY_SECONDS = 15

STYLE = """
:root { color-scheme: light dark; --ink: #1a1c1f; --quiet: #50565e; --line: #767c85;
  --paper: #fff; --button: #1a1c1f; --on-button: #fff; --bad: #a3210f; }
@media (prefers-color-scheme: dark) { :root { --ink: #f1f2f4; --quiet: #b3b9c2; --line: #8b919b;
  --paper: #14161a; --button: #f1f2f4; --on-button: #14161a; --bad: #ff9d8c; } }
* { box-sizing: border-box; }
body { margin: 0; min-height: 100vh; display: grid; place-items: center; padding: 24px;
  background: var(--paper); color: var(--ink); font: 17px/1.5 system-ui, sans-serif; }
main { width: 100%; max-width: 30rem; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 20px 0 8px; }
p { margin: 0 0 16px; } .quiet { color: var(--quiet); font-size: 0.94rem; }
.bad { color: var(--bad); }
svg { display: block; } rect { fill: none; stroke: currentColor; }
rect.full { fill: currentColor; }
label { display: block; font-weight: 600; margin-bottom: 6px; }
input { width: 100%; font: 1.25rem/1.4 ui-monospace, monospace; letter-spacing: 0.08em;
  padding: 10px 12px; border: 1px solid var(--line); border-radius: 6px;
  background: var(--paper); color: var(--ink); }
button, .button { display: inline-block; font: inherit; font-weight: 600; margin: 14px 0;
  padding: 10px 20px; border: 0; border-radius: 6px; background: var(--button);
  color: var(--on-button); text-decoration: none; cursor: pointer; }
:focus-visible { outline: 3px solid #4c8dff; outline-offset: 2px; }
"""

EMPTY, ALL = 0, 4


def _page(title: str, body: str, full: int = EMPTY, head: str = "") -> str:
    boxes = "".join(
        f'<rect{" class=full" if n < full else ""} x="{1 + 37 * n}" y="1" width="33" height="38" '
        'rx="3"/>'
        for n in range(4)
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{escape(title)} · kvlab</title>"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="data:;base64,=">{head}<style>{STYLE}</style></head><body><main>'
        f'<svg width="148" height="40" viewBox="0 0 148 40" aria-hidden="true">{boxes}</svg>'
        f"<h1>{escape(title)}</h1>{body}</main></body></html>\n"
    )


def room_full(seats: int, own: bool) -> str:
    """There is no seat; the page asks again by itself."""
    if own:
        title = "You have the lab open already"
        text = (
            "Each person may have a few pages of it at once. Go on in one of those, or close one."
        )
    else:
        title = "The room is full"
        text = (
            f"All {seats} seats of this lab are taken, like the blocks of its KV cache. "
            "A seat is free again when somebody closes the page."
        )
    return _page(
        title,
        f'<p role="status">{escape(text)}</p>'
        f'<p class="quiet">This page tries again every {RETRY_SECONDS} seconds.</p>'
        '<a class="button" href="">Try now</a>',
        full=ALL,
        head=f'<meta http-equiv="refresh" content="{RETRY_SECONDS}">',
    )


BROKEN_OFF = """
<div id="broken_off" role="alert" style="max-width: 34rem; margin: 20vh auto; padding: 0 24px;
  font: 17px/1.5 system-ui, sans-serif; color: var(--jp-content-font-color1);">
  <h1 style="font-size: 1.6rem; line-height: 1.25;">The engine ended before this page was ready</h1>
  <p>Nothing that you wrote is lost: this tab and its address keep it.</p>
  <button onclick="location.reload()" style="font: inherit; font-weight: 600; padding: 10px 20px;">
    Load the page again</button>
</div>
<script>document.body.replaceChildren(document.getElementById("broken_off"));</script>
"""
"""The end of a page whose kernel has ended while it rendered; it takes the place of what was sent."""


def token_asked(action: str, xsrf_field: str, problem: str = "") -> str:
    """`action`: where the form goes; `xsrf_field`: a hidden input that Tornado made."""
    complaint = f'<p class="bad" role="alert">{escape(problem)}</p>' if problem else ""
    described = ' aria-invalid="true"' if problem else ""
    return _page(
        "Which room?",
        "<p>The lab wants the token that your teacher shows. Capitals and dashes do not matter.</p>"
        f'{complaint}<form method="post" action="{escape(action)}">{xsrf_field}'
        '<label for="token">Token</label>'
        f'<input id="token" name="password" autocomplete="off" autocapitalize="characters" '
        f'spellcheck="false" maxlength="200" required autofocus{described}>'
        "<button>Enter</button></form>",
        full=1,
    )


def refused(status: int) -> str:
    """An error, without a word on why: what is known of it stays on the server."""
    try:
        what = HTTPStatus(status).phrase
    except ValueError:
        what = "Error"
    text = "Something went wrong here." if status >= 500 else "There is nothing at this address."
    return _page(f"{status} {what}", f'<p>{text}</p><a class="button" href="/">To the lab</a>')
