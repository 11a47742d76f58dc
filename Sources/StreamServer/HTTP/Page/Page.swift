import HTTP

/// The page at `/`: a table of the streams that it keeps live itself. One document without external resources.
enum Page {
  /// The document.
  static let body = Array((head + style + middle + script + end).utf8)

  /// The tag of the document.
  static let tag = EntityTag(digest: sha256(body).prefix(8).reduce(0) { $0 << 8 | UInt64($1) })

  /// The policy of the document: it may run its own script and style, and request resources of this server. Nothing is
  /// written as markup, so that no stream's name or event becomes a part of the document.
  static let securityPolicy = [
    "default-src 'none'", "script-src '\(source(script))'", "style-src '\(source(style))'", "img-src data:",
    "connect-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
    "require-trusted-types-for 'script'", "trusted-types 'none'",
  ].joined(separator: "; ")

  /// A source of the policy. Source: Content Security Policy Level 3, section 2.3.1.
  private static func source(_ text: String) -> String { "sha256-" + base64(sha256(Array(text.utf8))) }

  private static let head = #"""
    <!doctype html>
    <html lang="en">
    <head>
    <meta charset="utf-8">
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <meta name="color-scheme" content="light dark">
    <title>streamd</title>
    <link rel="icon" href="data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Cpath
     d='M1 4h14M1 8h9M1 12h12' stroke='%23287' stroke-width='2'/%3E%3C/svg%3E">
    <style>
    """#

  private static let middle = #"""
    </style>
    </head>
    <body>
    <header>
    <h1>streamd <span id="version"></span></h1>
    <p><span id="status" role="status" class="waiting">Waiting for a connection</span> <span id="retry"></span></p>
    <dl id="facts"></dl>
    <p id="trouble" role="status" class="bad"></p>
    </header>
    <noscript><p>This page requires JavaScript. The same data: <code>/streams</code>, <code>/stats</code> and
    <code>/metrics</code>.</p></noscript>
    <main>
    <section id="streams" aria-labelledby="streams-label">
    <div class="tools">
    <h2 id="streams-label">Streams</h2>
    <label for="filter">Filter</label> <input id="filter" type="search" autocomplete="off" spellcheck="false">
    <span id="shown" role="status"></span>
    </div>
    <table aria-labelledby="streams-label">
    <thead><tr id="columns"></tr></thead>
    <tbody id="rows"></tbody>
    </table>
    </section>
    <section id="hint" aria-labelledby="hint-label" hidden>
    <h2 id="hint-label">No stream yet</h2>
    <p>There is no stream that this client may read or publish to. A first one, in
    <code>/etc/streamd/streamd.d/first.toml</code>:</p>
    <pre tabindex="0" role="region" aria-label="Configuration"><code>[streams.clock]
    timer.every = "1s"

    [streams.notes]
    type = "text/plain"
    publish = true</code></pre>
    <p>Then <code>systemctl reload streamd</code>: this page shows them at once. If there are streams already, their
    <code>read</code> and <code>write</code> do not admit this client; over TCP, only <code>"*"</code> and its token do.</p>
    </section>
    <section id="detail" aria-labelledby="detail-name" hidden>
    <div class="tools">
    <h2 id="detail-name" tabindex="-1"></h2>
    <button id="close" type="button">Close</button>
    </div>
    <p id="description"></p>
    <dl id="detail-facts"></dl>
    <div class="charts">
    <p id="events-chart">Events, last 5 min</p>
    <p id="bytes-chart">Data, last 5 min</p>
    </div>
    <section id="keys" aria-labelledby="keys-label">
    <h3 id="keys-label">Keys</h3>
    <div class="scrolled" tabindex="0" role="group" aria-labelledby="keys-label">
    <table aria-labelledby="keys-label">
    <thead><tr><th scope="col">Key</th><th scope="col">Newest event</th><th scope="col" class="number">Time</th></tr></thead>
    <tbody id="key-rows"></tbody>
    </table>
    </div>
    <p id="keys-status"></p>
    </section>
    <h3 id="events-label">Newest events first</h3>
    <p id="events-status" role="status"></p>
    <ol id="events" class="scrolled" tabindex="0" aria-labelledby="events-label"></ol>
    <h3 id="command-label">The same on the command line</h3>
    <pre tabindex="0" role="region" aria-labelledby="command-label"><code id="command"></code>
    <code id="local-command"></code></pre>
    </section>
    </main>
    <footer>
    <details id="access">
    <summary>Access token</summary>
    <form id="token-form" class="tools">
    <label for="token">Token</label>
    <input id="token" type="password" autocomplete="off" required minlength="16" maxlength="1024"
     pattern="[A-Za-z0-9._~+\/=\-]+" title="Letters, digits and - . _ ~ + / =">
    <button>Use</button>
    <button id="forget" type="button" hidden>Forget</button>
    <span id="token-status" role="status"></span>
    </form>
    <p>A client over TCP may have one (<code>[[tokens]]</code>). This tab keeps it until it is closed.</p>
    </details>
    </footer>
    <script>
    """#

  private static let end = #"""
    </script>
    </body>
    </html>

    """#
}
