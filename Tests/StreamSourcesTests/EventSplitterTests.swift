import Events
import Testing

@testable import StreamSources

/// The events of `text`, fed in pieces of `size` bytes, and of its end.
func events(_ text: String, cutAt size: Int, _ splitter: some EventSplitter) throws -> [String] {
  try events(Array(text.utf8), cutAt: size, splitter).events
}

func events<S: EventSplitter>(
  _ bytes: [UInt8], cutAt size: Int, _ splitter: S
) throws -> (events: [String], splitter: S) {
  var splitter = splitter
  var events: EventBatch = []
  for start in stride(from: 0, to: bytes.count, by: size) {
    try bytes[start..<min(bytes.count, start + size)].withUnsafeBytes { try splitter.split($0, into: &events) }
  }
  try splitter.end(into: &events)
  return (events.map { String(decoding: $0, as: UTF8.self) }, splitter)
}

private let cuts = [1, 2, 3, 7, 1000]

@Suite struct LineSplitterTests {
  @Test(arguments: cuts) func eachLineIsAnEventWhateverThePieces(size: Int) throws {
    let splitter = LineSplitter(maximumBytes: 100)
    #expect(
      try events("{\"a\":1}\n{\"b\":2}\r\n\n\r\nlast", cutAt: size, splitter) == ["{\"a\":1}", "{\"b\":2}", "last"])
    #expect(try events("a\rb\n", cutAt: size, splitter) == ["a\rb"])
    #expect(try events("", cutAt: size, splitter).isEmpty)
  }

  @Test(arguments: cuts) func linesEndAsConfigured(size: Int) throws {
    for (end, text, expected) in [
      ("cr", "a\rb\n c\r\r \rd", ["a", "b\n c", "d"]), ("lf", "a\r\nb\n\r\n\nc", ["a\r", "b", "c"]),
      ("crlf", "a\nb\r\n\r\nc\rd\r\n \n\r\r\ne\n", ["a\nb", "c\rd", "e\n"]),
      (";", "a;;b\r\n; ;c", ["a", "b\r\n", "c"]),
      ("\u{3}", "a\u{3}b\u{3}", ["a", "b"]),
    ] {
      let splitter = LineSplitter(maximumBytes: 6, end: try #require(LineEnd(end)))
      #expect(try events(text, cutAt: size, splitter) == expected, "\(end)")
      #expect(throws: EventTooLong(maximumBytes: 6)) { try events("1234567", cutAt: size, splitter) }
    }
    let dropping = LineSplitter(maximumBytes: 2, end: try #require(LineEnd("crlf")), dropsLongLines: true)
    #expect(try events("123\n4\r5\r\nab\r\n1234567890\r\ncd\r\n", cutAt: size, dropping) == ["ab", "cd"])
    let bytes = LineSplitter(maximumBytes: 6, end: try #require(LineEnd("\u{ff}")))
    #expect(try events([0x61, 0xff, 0x62, 0xff], cutAt: size, bytes).0 == ["a", "b"])
    for text in ["", "CR", "\u{100}", "ab", "\r\n"] { #expect(LineEnd(text) == nil) }
  }

  @Test(arguments: cuts) func aByteOrderMarkAndLinesOfWhiteSpaceAreNoEvents(size: Int) throws {
    let splitter = LineSplitter(maximumBytes: 4)
    #expect(
      try events("\u{FEFF}1234\r\n \n\t \r\n\n \u{FEFF}\n  ", cutAt: size, splitter)
        == ["1234", " \u{FEFF}"])
    #expect(try events("\u{FEFF}\n\u{FEFF}\n", cutAt: size, splitter) == ["\u{FEFF}"])
    #expect(try events("\u{FEFF}", cutAt: size, splitter).isEmpty)
    #expect(throws: EventTooLong(maximumBytes: 4)) { try events("12345\n", cutAt: size, splitter) }
    #expect(throws: EventTooLong(maximumBytes: 4)) { try events("12345", cutAt: size, splitter) }
  }

  @Test func aRunOfLinesOfWhiteSpaceIsOneStep() throws {
    var splitter = LineSplitter(maximumBytes: 8)
    var events = EventBatch()
    try Array("x\n".utf8).withUnsafeBytes { try splitter.split($0, into: &events) }
    for run in ["\n", "\r\n", " \n", "\t \r\n", "\r\r\n"] {
      let bytes = Array(String(repeating: run, count: 20_000).utf8)
      #expect(try bytes.withUnsafeBytes { try splitter.blankLines($0) } == bytes.count)
      #expect(try (bytes + Array(" y\n".utf8)).withUnsafeBytes { try splitter.blankLines($0) } == bytes.count)
    }
    #expect(try Array(" \n  y".utf8).withUnsafeBytes { try splitter.blankLines($0) } == 2)
    #expect(try Array("y\n\n".utf8).withUnsafeBytes { try splitter.blankLines($0) } == 0)
  }

  @Test(arguments: cuts) func aLineOfWhiteSpaceOverTheLimitIsRefusedInARunToo(size: Int) throws {
    let splitter = LineSplitter(maximumBytes: 4)
    #expect(try events("x\n\n    \r\n    \n  y \n", cutAt: size, splitter) == ["x", "  y "])
    #expect(throws: EventTooLong(maximumBytes: 4)) { try events("x\n\n     \ny\n", cutAt: size, splitter) }
    #expect(throws: EventTooLong(maximumBytes: 4)) { try events("x\n\n     \r\ny\n", cutAt: size, splitter) }
  }

  @Test(arguments: cuts) func aLineOfTheLimitIsAcceptedAndALongerOneRefused(size: Int) throws {
    let splitter = LineSplitter(maximumBytes: 5)
    #expect(try events("12345\n12345\r\n", cutAt: size, splitter) == ["12345", "12345"])
    #expect(throws: EventTooLong(maximumBytes: 5)) { try events("1234567\n", cutAt: size, splitter) }
    #expect(throws: EventTooLong(maximumBytes: 5)) { try events("1234567890123", cutAt: size, splitter) }
  }

  @Test(arguments: cuts) func aLongLineIsLeftOutAndCountedIfThatIsAskedFor(size: Int) throws {
    let splitter = LineSplitter(maximumBytes: 5, dropsLongLines: true)
    let text = "1234567890\n12345\r\n123456\r\n\n   \nab\n123456789012"
    var (taken, rest) = try events(Array(text.utf8), cutAt: size, splitter)
    #expect(taken == ["12345", "ab"])
    #expect(rest.takeDroppedCount() == 3 && rest.takeDroppedCount() == 0)
    (taken, rest) = try events(Array("1234567890\n".utf8), cutAt: size, splitter)
    #expect(taken.isEmpty && rest.takeDroppedCount() == 1)
  }
}

/// The cases of the standard's section on parsing and interpreting an event stream.
@Suite struct ServerSentEventsTests {
  struct Case: Sendable, CustomTestStringConvertible {
    let testDescription: String
    let text: String
    let events: [String]
    var id = ""
    var retry: Duration?
  }

  static let cases = [
    Case(
      testDescription: "a block of data lines is one event, joined by line feeds", text: "data: a\ndata: b\n\n",
      events: ["a\nb"]),
    Case(testDescription: "lines end with CR", text: "data: a\rdata: b\r\rdata: c\r\r", events: ["a\nb", "c"]),
    Case(testDescription: "lines end with CRLF", text: "data: a\r\ndata: b\r\n\r\n", events: ["a\nb"]),
    Case(
      testDescription: "ends of lines may be mixed", text: "data: a\rdata: b\r\ndata: c\n\r\ndata: d\n\n",
      events: ["a\nb\nc", "d"]),
    Case(
      testDescription: "one byte order mark at the beginning is left out", text: "\u{FEFF}data: a\n\n", events: ["a"]),
    Case(
      testDescription: "only one, and only there", text: "\u{FEFF}\u{FEFF}data: a\n\n\u{FEFF}data: b\n\n", events: []),
    Case(
      testDescription: "a line that begins with a colon is a comment", text: ": hello\ndata: a\n:\n\n: bye\n\n",
      events: ["a"]),
    Case(
      testDescription: "one space behind the colon is left out", text: "data:a\ndata: b\ndata:  c\n\n",
      events: ["a\nb\n c"]),
    Case(testDescription: "everything behind the first colon is the value", text: "data: a: b\n\n", events: ["a: b"]),
    Case(
      testDescription: "a line without a colon is a field without a value", text: "data\n\ndata\ndata\n\ndata:\n\n",
      events: ["", "\n", ""]),
    Case(
      testDescription: "a block without data is no event", text: "event: x\n\nid: 7\n\ndata: a\n\n", events: ["a"],
      id: "7"),
    Case(
      testDescription: "the type of an event is not part of it", text: "event: add\ndata: 73857293\n\n",
      events: ["73857293"]),
    Case(
      testDescription: "unknown fields are ignored, and case matters", text: "Data: x\nfoo: y\ndata: a\n\n",
      events: ["a"]),
    Case(
      testDescription: "an id stays until another one comes", text: "data: a\nid: 1\n\ndata: b\n\n",
      events: ["a", "b"], id: "1"),
    Case(
      testDescription: "an id without a value takes it back", text: "data: a\nid: 1\n\ndata: b\nid\n\n",
      events: ["a", "b"], id: ""),
    Case(
      testDescription: "an id with a NULL is ignored", text: "data: a\nid: 1\n\nid: 2\u{0}\ndata: b\n\n",
      events: ["a", "b"], id: "1"),
    Case(
      testDescription: "an id counts from the end of its event", text: "data: a\nid: 1\n\ndata: b\nid: 2\n",
      events: ["a"], id: "1"),
    Case(
      testDescription: "retry of digits is the reconnection time", text: "retry: 2500\n\n", events: [],
      retry: .milliseconds(2500)),
    Case(
      testDescription: "retry is a day at most", text: "retry: 99999999999999999999\n\n", events: [],
      retry: .seconds(86_400)),
    Case(
      testDescription: "retry of anything else is ignored", text: "retry: 1s\nretry: -1\nretry:\nretry\n\n", events: []),
    Case(
      testDescription: "an event without the empty line at its end is none", text: "data: a\n\ndata: b\n", events: ["a"]
    ),
    Case(testDescription: "nor is half a line", text: "data: a\n\ndata: b", events: ["a"]),
    Case(testDescription: "empty lines alone are nothing", text: "\n\n\r\n\r\r", events: []),
    Case(
      testDescription: "the standard's example of three blocks",
      text: ": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n\n",
      events: ["first event", "second event", " third event"]),
  ]

  @Test(arguments: cases) func theStandardIsFollowedWhateverThePieces(_ what: Case) throws {
    for size in 1...max(1, what.text.utf8.count) {
      let (events, splitter) = try events(
        Array(what.text.utf8), cutAt: size, ServerSentEventSplitter(maximumBytes: 100))
      #expect(events == what.events, "cut at \(size)")
      #expect(splitter.lastEventID == Array(what.id.utf8), "cut at \(size)")
      #expect(splitter.reconnectionTime == what.retry, "cut at \(size)")
    }
  }

  @Test func aRunOfEmptyLinesIsOneStep() throws {
    var splitter = ServerSentEventSplitter(maximumBytes: 8)
    var events = EventBatch()
    func count(_ text: String) -> Int {
      Array(text.utf8).withUnsafeBytes { splitter.emptyLines($0[...]) }
    }
    #expect(count("\n\n") == 0)
    try Array("data:x\n\n".utf8).withUnsafeBytes { try splitter.split($0, into: &events) }
    for run in ["\n", "\r\n", "\r", "\n\r"] {
      let text = String(repeating: run, count: 20_000)
      #expect(count(text) == text.utf8.count && count(text + "data:y\n") == text.utf8.count)
    }
    // An empty line ends an event.
    try Array("data:y\n".utf8).withUnsafeBytes { try splitter.split($0, into: &events) }
    #expect(count("\n\n") == 0)
  }

  @Test(arguments: cuts) func emptyLinesBetweenEventsAreNothing(size: Int) throws {
    let text = "\r\n\r\ndata:a\r\n\r\n\r\n\r\r\n\n\rid:1\n\n\n\ndata:b\r\r\r\r\ndata:c\n\n"
    let (events, splitter) = try events(Array(text.utf8), cutAt: size, ServerSentEventSplitter(maximumBytes: 100))
    #expect(events == ["a", "b", "c"] && splitter.lastEventID == Array("1".utf8))
  }

  @Test func invalidUTF8IsReplaced() throws {
    let bytes = Array("data: a".utf8) + [0xFF] + Array("b\n\n".utf8)
    #expect(try events(bytes, cutAt: 1, ServerSentEventSplitter(maximumBytes: 100)).events == ["a\u{FFFD}b"])
  }

  @Test func theIDOfThePreviousConnectionIsKept() throws {
    let splitter = ServerSentEventSplitter(maximumBytes: 100, lastEventID: Array("41".utf8))
    #expect(try events(Array("data: a\n\n".utf8), cutAt: 3, splitter).splitter.lastEventID == Array("41".utf8))
  }

  @Test(arguments: cuts) func anEventOfTheLimitIsAcceptedAndALongerOneRefused(size: Int) throws {
    let splitter = ServerSentEventSplitter(maximumBytes: 5)
    #expect(try events("data: 12345\n\ndata: 12\ndata: 45\n\n", cutAt: size, splitter) == ["12345", "12\n45"])
    #expect(throws: EventTooLong(maximumBytes: 5)) { try events("data: 123456\n\n", cutAt: size, splitter) }
    #expect(throws: EventTooLong(maximumBytes: 5)) { try events("data: 12\ndata: 456\n\n", cutAt: size, splitter) }
    #expect(throws: EventTooLong(maximumBytes: 5)) {
      try events(":" + String(repeating: "x", count: 100), cutAt: size, splitter)
    }
  }
}
