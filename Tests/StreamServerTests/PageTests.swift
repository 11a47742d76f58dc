import Foundation
import HTTP
import StreamRuntime
import Testing

@testable import StreamServer

@Suite struct PageTests {
  @Test func thePageAllowsItsOwnScriptAndStyleOnly() async throws {
    try await withServer { harness in
      let client = try HTTPTestClient(harness.path)
      let page = try client.get("/")
      #expect(page.status == 200 && page.fields["content-type"] == "text/html; charset=utf-8")
      #expect(page.fields["cache-control"] == "no-cache" && page.fields["x-content-type-options"] == "nosniff")
      #expect(page.fields["referrer-policy"] == "no-referrer")
      #expect(page.fields["cross-origin-resource-policy"] == "same-origin")
      let policy = page.fields["content-security-policy"]?.components(separatedBy: "; ") ?? []
      #expect(policy.contains("default-src 'none'") && policy.contains("connect-src 'self'"))
      #expect(policy.contains("frame-ancestors 'none'"))
      for element in ["script", "style"] {
        let parts = page.body.components(separatedBy: ["<\(element)>", "</\(element)>"])
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
      let client = try HTTPTestClient(harness.path)
      let head = try client.get("/", method: "HEAD")
      let tag = try #require(head.fields["etag"])
      #expect(head.fields["content-length"] == String(Page.body.count))
      let known = try client.get("/", "If-None-Match: \(tag)")
      #expect(known.status == 304 && known.body.isEmpty && known.fields["etag"] == tag)
      #expect(try client.get("/?theme=dark").body.contains("unknown parameter \\\"theme\\\""))
      #expect(try client.get("/").status == 200)
    }
  }
}

extension String {
  /// The parts between any of several separators.
  fileprivate func components(separatedBy separators: [String]) -> [String] {
    separators.reduce([self]) { parts, separator in parts.flatMap { $0.components(separatedBy: separator) } }
  }
}
