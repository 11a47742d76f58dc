import CPage
import HTTP

/// The page at `/`: a table of the streams that it keeps live itself. One document without external resources, whose files
/// are those of `Sources/C/CPage`.
enum Page {
  /// The document.
  static let body = Array(
    unsafe text(page_document())
      .replacing("<style></style>", with: "<style>\(style)</style>")
      .replacing("<script></script>", with: "<script>\(script)</script>").utf8)

  /// The tag of the document.
  static let tag = EntityTag(digest: sha256(body).prefix(8).reduce(0) { $0 << 8 | UInt64($1) })

  /// The policy of the document: it may run its own script and style, and request resources of this server. Nothing is
  /// written as markup, so that no stream's name or event becomes a part of the document.
  static let securityPolicy = [
    "default-src 'none'", "script-src '\(source(script))'", "style-src '\(source(style))'", "img-src data:",
    "connect-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
    "require-trusted-types-for 'script'", "trusted-types 'none'",
  ].joined(separator: "; ")

  private static let style = unsafe "\n" + text(page_style())

  /// The script. It sets all data of the server as text.
  private static let script = unsafe "\n" + text(page_script())

  private static func text(_ file: page_file) -> String {
    unsafe String(decoding: UnsafeBufferPointer(start: file.bytes, count: file.count), as: UTF8.self)
  }

  /// A source of the policy. Source: Content Security Policy Level 3, section 2.3.1.
  private static func source(_ text: String) -> String { "sha256-" + base64(sha256(Array(text.utf8))) }
}
