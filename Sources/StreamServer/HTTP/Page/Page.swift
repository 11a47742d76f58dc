import HTTP

/// The page at `/`: a table of the streams that it keeps live itself. One document without external resources.
enum Page {
  /// The document.
  static let body = Array((head + style + middle + script + end).utf8)

  /// The tag of the document.
  static let tag = EntityTag(digest: sha256(body).prefix(8).reduce(0) { $0 << 8 | UInt64($1) })

  /// What the document may do: run its own script and style, and request resources of this server. Nothing is written
  /// as markup, so that no stream's name or event becomes a part of the document.
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
    <dl id="facts">
    <div><dt>Uptime</dt><dd id="uptime">–</dd></div>
    <div hidden><dt>Connections</dt><dd id="connections">–</dd></div>
    <div hidden><dt>Loop load</dt><dd id="load">–</dd></div>
    </dl>
    <p id="status" role="status">Connecting…</p>
    </header>
    <noscript><p>This page requires JavaScript. The same data: <code>/streams</code>, <code>/stats</code> and
    <code>/metrics</code>.</p></noscript>
    <main>
    <section id="detail" aria-labelledby="detail-name" hidden>
    <h2 id="detail-name" tabindex="-1"></h2>
    <button id="close" type="button">Close</button>
    <p id="description"></p>
    <p id="command-label">The same on the command line:</p>
    <pre tabindex="0" role="region" aria-labelledby="command-label"><code id="command"></code></pre>
    <h3 id="events-label">Newest events first</h3>
    <p id="events-status" role="status"></p>
    <ol id="events" tabindex="0" aria-labelledby="events-label"></ol>
    </section>
    <section aria-labelledby="streams-label">
    <h2 id="streams-label">Streams</h2>
    <p class="tools"><label for="filter">Filter</label>
    <input id="filter" type="search" autocomplete="off" spellcheck="false"> <span id="shown" role="status"></span></p>
    <table aria-labelledby="streams-label">
    <thead><tr id="columns"></tr></thead>
    <tbody id="rows"></tbody>
    </table>
    </section>
    </main>
    <script>
    """#

  private static let end = #"""
    </script>
    </body>
    </html>

    """#
}
