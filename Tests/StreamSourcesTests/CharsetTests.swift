import Events
import Reactive
import StreamRuntime
import TestSupport
import Testing

@testable import StreamSources

/// Bodies in other charsets than UTF-8.
@Suite struct CharsetTests {
  /// - Returns: the text, and the number of faults.
  private func decoded(_ bytes: [UInt8], _ charset: String?, by size: Int) throws -> (String, Int) {
    var output: [UInt8] = []
    guard
      let decoder = try bytes.prefix(size).withUnsafeBytes({ bytes throws(ContentFault) in
        try CharsetDecoder.of(charset, bytes)
      })
    else {
      return (String(decoding: bytes, as: UTF8.self), 0)
    }
    for start in stride(from: 0, to: bytes.count, by: size) {
      bytes[start..<min(bytes.count, start + size)].withUnsafeBytes { decoder.decode($0, into: &output) }
    }
    decoder.end(into: &output)
    return (String(decoding: output, as: UTF8.self), decoder.takeFaultCount())
  }

  @Test(
    arguments: [
      ([0x67, 0x72, 0xFC, 0x6E], "iso-8859-1", "grün", 0), ([0x80, 0x35], "windows-1252", "€5", 0),
      ([0xA4], "iso-8859-15", "€", 0),
      ([0xFF, 0xFE, 0xFC, 0, 0x0A, 0], "utf-16", "ü\n", 0), ([0xFE, 0xFF, 0, 0xFC, 0, 0x0A], "utf-16", "ü\n", 0),
      ([0xFF, 0xFE, 0x3D, 0xD8, 0, 0xDE], nil, "😀", 0), ([0xFC, 0], "utf-16le", "ü", 0),
      ([0x93, 0xFA], "shift_jis", "日", 0), ([0x48, 0x69], "windows-1258", "Hi", 0),
      ([0x61, 0x0A, 0x62], "windows-1258", "a\nb", 0), ([0xF9, 0xED], "windows-1255", "שם", 0),
      ([0xC3, 0xBC], "utf-8", "ü", 0), ([0xC3, 0xBC], nil, "ü", 0),
      ([0x41, 0x81, 0x42], "windows-1252", "A\u{fffd}B", 1),
      ([0x41, 0, 0, 0xDC, 0x42, 0], "utf-16le", "A\u{fffd}B", 1), ([0x93], "shift_jis", "\u{fffd}", 1),
      ([0x41, 0, 0x42], "utf-16le", "A\u{fffd}", 1),
    ] as [([UInt8], String?, String, Int)])
  func textBecomesUTF8InAnyPieces(bytes: [UInt8], charset: String?, text: String, faults: Int) throws {
    for size in 1...bytes.count { #expect(try decoded(bytes, charset, by: size) == (text, faults)) }
  }

  @Test func aLongTextIsTheSameInPieces() throws {
    let bytes = (0..<100_000).map { UInt8(truncatingIfNeeded: $0 &* 7) | 0x20 }
    let whole = try decoded(bytes, "iso-8859-1", by: bytes.count)
    #expect(whole.0.unicodeScalars.map(\.value) == bytes.map { UInt32($0) })
    #expect(try decoded(bytes, "iso-8859-1", by: 999) == whole)
  }

  @Test(arguments: [
    "x-unknown", "utf-8//ignore", "", "iso-8859-1/", "ütf-8", String(repeating: "a", count: 100), "../../etc/passwd",
    "1252\u{0}",
  ])
  func aCharsetThatLibcDoesNotKnowIsAFailure(charset: String) {
    #expect(throws: ContentFault.self) { try decoded([0x41], charset, by: 1) }
  }
}

/// What a response says that its body is.
@Suite(.timeLimit(.minutes(10))) struct DeclaredContentTests {
  private let upstream: Upstream

  init() throws { upstream = try Upstream.shared.get() }

  private func configuration(_ type: String, _ body: [UInt8], _ content: HTTPContent) -> HTTPConfiguration {
    func digits(_ bytes: [UInt8]) -> String { bytes.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined() }
    let head = digits(Array("Content-Type: \(type)".utf8))
    var configuration = HTTPConfiguration(
      url: upstream.url("/raw/\(uniqueKey())?head=\(head)&body=\(digits(body))"),
      retry: Backoff(first: .milliseconds(1), max: .milliseconds(2)))
    configuration.content = content
    return configuration
  }

  /// What a source does first: its events in one text, a failure, or a report of lost events.
  private func outcome(
    _ source: (SourceThread, @escaping @Sendable (SourceReport) -> Void) -> AnyPublisher<EventBatch, Never>
  )
    async throws -> String?
  {
    let (outcomes, continuation) = AsyncStream<String>.makeStream()
    return try await withSourceThread { thread in
      let sink = source(thread) { report in
        switch report {
        case .failing(let sentence, _, _): continuation.yield(sentence)
        case .lost(let sentence, _): continuation.yield("lost: \(sentence)")
        default: break
        }
      }.sink { batch in continuation.yield(batch.map { String(decoding: $0, as: UTF8.self) }.joined(separator: "|")) }
      defer { sink.cancel() }
      return await outcomes.first { _ in true }
    }
  }

  private func page(_ type: String, _ body: [UInt8], _ content: HTTPContent) async throws -> String? {
    try await outcome { thread, report in
      HTTPPoll(configuration(type, body, content), every: .milliseconds(2))
        .source(on: thread, report: report).eraseToAnyPublisher()
    }
  }

  private func lines(_ type: String, _ body: [UInt8], _ content: HTTPContent) async throws -> String? {
    try await outcome { thread, report in
      HTTPStream(configuration(type, body, content), format: .lines).source(on: thread, report: report)
        .eraseToAnyPublisher()
    }
  }

  @Test func aBodyInAnotherCharsetBecomesUTF8() async throws {
    let latin = Array("\"gr".utf8) + [0xFC] + Array("n\"".utf8)
    let wide: [UInt8] = [0xFF, 0xFE] + Array("[1]\n[\"ü\"]\n".utf16).flatMap { [UInt8($0 & 255), UInt8($0 >> 8)] }
    for content in [HTTPContent.json, .text] {
      #expect(try await page("application/json; charset=ISO-8859-1", latin, content) == "\"grün\"")
      #expect(try await page("text/plain; charset=\"windows-1252\"", [0x80], .text) == "€")
      #expect(try await page("application/json; charset=utf-16", wide, content) == "[1]\n[\"ü\"]\n")
      #expect(try await page("application/json", wide, content) == "[1]\n[\"ü\"]\n")
      #expect(try await lines("application/x-ndjson; charset=utf-16", wide, content) == "[1]|[\"ü\"]")
      #expect(try await lines("application/x-ndjson", wide, content) == "[1]|[\"ü\"]")
      #expect(
        try await lines("text/plain; charset=iso-8859-1", latin + [10] + latin + [10], content) == "\"grün\"|\"grün\"")
    }
  }

  @Test func aBodyThatIsAnythingStaysAsItIs() async throws {
    #expect(try await page("text/plain; charset=iso-8859-1", [0x67, 0xFC], .any) == "g\u{fffd}")
    #expect(try await page("text/html", Array("<p>".utf8), .any) == "<p>")
    #expect(try await page("text/html", Array("<p>".utf8), .text) == "<p>")
    #expect(try await page("multipart/x-mixed-replace; boundary=a", Array("--a".utf8), .text) == "--a")
  }

  @Test func aFaultOfABodyIsNamed() async throws {
    let unknown = "the response has the charset x-none, which libc does not know"
    #expect(try await page("text/plain; charset=X-None", [0x41], .text) == unknown)
    #expect(try await lines("text/plain; charset=X-None", [0x41, 10], .text) == unknown)
    #expect(
      try await page("text/plain; charset=windows-1252", [0x81], .text)
        == "lost: a page is not windows-1252, as it says")
    #expect(
      try await lines("text/plain; charset=windows-1252", [0x81, 10], .text)
        == "lost: the response is not windows-1252, as it says")
  }

  @Test(arguments: ["text/html", "text/html; charset=utf-8", "application/xhtml+xml"])
  func aDocumentIsNoJSON(type: String) async throws {
    let name = type.split(separator: ";")[0]
    let sentence = "the response is \(name), which is not JSON"
    for text in ["<!DOCTYPE html><p>log in</p>", "\n<html>", "\u{feff}<html>"] {
      #expect(try await page(type, Array(text.utf8), .json) == sentence)
      #expect(try await lines(type, Array(text.utf8), .json) == sentence)
    }
    #expect(try await page(type, Array("404".utf8), .json) == "404")
    #expect(try await page(type, Array("Not found".utf8), .json) == sentence)
    // A server that calls its JSON a document.
    #expect(try await page(type, Array("{}".utf8), .json) == "{}")
    #expect(try await lines(type, Array("{}\n".utf8), .json) == "{}")
  }

  @Test func aResponseOfSeveralPartsIsNoJSON() async throws {
    let sentence = "the response is multipart/x-mixed-replace, which is not JSON"
    #expect(try await page("multipart/x-mixed-replace; boundary=a", Array("--a".utf8), .json) == sentence)
    #expect(try await lines("multipart/x-mixed-replace; boundary=a", Array("--a".utf8), .json) == sentence)
  }
}
