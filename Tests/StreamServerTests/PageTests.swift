import Foundation
import HTTP
import StreamRuntime
import Testing

@testable import StreamServer

@Suite struct PageTests {
  @Test func thePageAllowsItsOwnScriptAndStyleOnly() async throws {
    try await withServer { harness in
      let client = try HTTPWireClient(harness.path)
      let page = try client.fetch("/")
      #expect(page.status == 200 && page["Content-Type"] == "text/html; charset=utf-8")
      #expect(page["Cache-Control"] == "no-cache" && page["X-Content-Type-Options"] == "nosniff")
      #expect(page["Referrer-Policy"] == "no-referrer")
      #expect(page["Cross-Origin-Resource-Policy"] == "same-origin")
      let policy = page["Content-Security-Policy"]?.components(separatedBy: "; ") ?? []
      #expect(policy.contains("default-src 'none'") && policy.contains("connect-src 'self'"))
      #expect(policy.contains("frame-ancestors 'none'"))
      for element in ["script", "style"] {
        let parts = page.text.components(separatedBy: ["<\(element)>", "</\(element)>"])
        #expect(parts.count == 3)
        #expect(policy.contains("\(element)-src 'sha256-\(base64(sha256(Array(parts[1].utf8))))'"))
      }
    }
  }

  @Test func thePageHasNoExternalResourcesAndWritesNoMarkup() {
    let page = String(decoding: Page.body, as: UTF8.self)
    for text in ["src=", "@import", "url(", "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("] {
      #expect(!page.contains(text), "\(text)")
    }
  }

  @Test func aKnownPageIsNotSentAgain() async throws {
    try await withServer { harness in
      let client = try HTTPWireClient(harness.path)
      let head = try client.fetch("/", method: "HEAD")
      let tag = try #require(head["ETag"])
      #expect(head["Content-Length"] == String(Page.body.count))
      let known = try client.fetch("/", "If-None-Match: \(tag)")
      #expect(known.status == 304 && known.text.isEmpty && known["ETag"] == tag)
      #expect(try client.fetch("/?theme=dark").text.contains("unknown parameter \\\"theme\\\""))
      #expect(try client.fetch("/").status == 200)
    }
  }
}

extension String {
  /// The parts between any of several separators.
  fileprivate func components(separatedBy separators: [String]) -> [String] {
    separators.reduce([self]) { parts, separator in parts.flatMap { $0.components(separatedBy: separator) } }
  }
}
