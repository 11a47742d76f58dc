import Testing

@testable import streamctl

@Suite struct JSONTextTests {
  @Test(arguments: [
    ("1", "1\n"), (" [ ] ", "[]\n"), ("{}", "{}\n"), ("[1,\"a, {\\\"\"]", "[\n  1,\n  \"a, {\\\"\"\n]\n"),
    ("{\"a\":[{\"b\" : null}],\"c\":\"\"}", "{\n  \"a\": [\n    {\n      \"b\": null\n    }\n  ],\n  \"c\": \"\"\n}\n"),
  ]) func jsonIsIndentedByItsDepth(text: String, indented: String) {
    #expect(String(decoding: JSONText.indented(Array(text.utf8)), as: UTF8.self) == indented)
  }

  /// Events are what others have published.
  @Test func aTerminalIsNotControlledByEvents() {
    func text(_ data: String) -> String { String(decoding: Terminal.escapedText(Array(data.utf8)), as: UTF8.self) }
    func json(_ data: String) -> String { String(decoding: Terminal.escapedJSON(Array(data.utf8)), as: UTF8.self) }
    #expect(text("a\tb\r\nc\n👩\u{200D}🔬 é") == "a\tb\r\nc\n👩\u{200D}🔬 é")
    #expect(text("\u{1B}[2J\rx\u{9B}\u{202E}\u{0}") == #"\u{1B}[2J\rx\u{009B}\u{202E}\0"#)
    #expect(Terminal.escapedText([0x61, 0x9B, 0x62]) == Array("a\u{FFFD}b".utf8))
    #expect(json("{\n  \"a\": \"é\u{200D}\"\n}\n") == "{\n  \"a\": \"é\u{200D}\"\n}\n")
    #expect(json("[\"\u{9B}2J\u{202E}\u{7F}\u{E0041}\",\n1]") == "[\"\\u009b2J\\u202e\\u007f\\udb40\\udc41\",\n1]")
    #expect(!Terminal.isOutput || Terminal.shown([0x1B], isJSON: false) != [0x1B])
  }

  @Test(
    arguments: [
      (0, "1970-01-01T00:00:00.000000Z"), (951_782_400_000_001, "2000-02-29T00:00:00.000001Z"),
      (1_795_190_471_123_456, "2026-11-20T16:01:11.123456Z"),
    ] as [(UInt64, String)]) func timesAreRFC3339WithMicroseconds(microseconds: UInt64, text: String)
  {
    #expect("\(UTCTime(microsecondsSinceEpoch: microseconds))" == text)
  }
}

@Suite struct KeyTests {
  @Test func aTerminalsSequencesAreKeys() {
    #expect(
      Key.keys(Array("q\u{1b}[A\u{1b}OB\u{1b}[5~\u{1b}[6~j\u{1b}[1;5Hx\u{1b}[".utf8)) == [
        .letter("q"), .up, .down, .pageUp, .pageDown, .letter("j"), .home, .letter("x"),
      ])
    #expect(Key.keys([0x1B]) == [.letter("\u{1b}")] && Key.keys([0x1B, 0x5B, 0xFF]).isEmpty)
  }
}

@Suite struct ArgumentsTests {
  @Test func everythingHasADefault() throws {
    let arguments = try Arguments(["sub", "clock"], environment: [:])
    #expect(
      arguments == Arguments(socket: "/run/streamd/streamd.sock", command: .subscribe(.init(streams: .init(["clock"]))))
    )
  }

  @Test func theSocketOptionPrecedesTheEnvironment() throws {
    #expect(try Arguments(["list"], environment: ["STREAMD_SOCKET": "/e"]).socket == "/e")
    #expect(try Arguments(["list"], environment: ["STREAMD_SOCKET": ""]).socket == Arguments.defaultSocket)
    #expect(try Arguments(["list", "--socket", "/o"], environment: ["STREAMD_SOCKET": "/e"]).socket == "/o")
  }

  @Test func otherPositionsThanWordsAndIdsAreSentToTheServer() throws {
    let positions = ["replay", "latest", "new", "42", "-10", "-5m", "2026-11-20T16:00:00Z"].map { word in
      try? Arguments(["sub", "a", "--from", word], environment: [:]).command
    }
    let expected: [Arguments.Command] = [
      .replay, .latest, .new, .after(id: 42), .last(10), .since("-5m"), .since("2026-11-20T16:00:00Z"),
    ].map { from in .subscribe(.init(streams: .init(["a"]), options: .init(from: from))) }
    #expect(positions == expected)
    #expect(
      try Arguments(["sub", "a", "--last", "10"], environment: [:]).command
        == .subscribe(.init(streams: .init(["a"]), options: .init(from: .last(10)))))
    #expect(
      try Arguments(["sub", "-n3", "-o", "json", "-f", "a", "b*"], environment: [:]).command
        == .subscribe(.init(streams: .init(["a", "b*"]), options: .init(from: .last(3)), format: .json)))
    #expect(try Arguments(["list", "-l", "-o=json"], environment: [:]).command == .listJSON)
    #expect(try Arguments(["ls", "-l"], environment: [:]).command == .list(.init(isLong: true)))
    for words in [
      ["a", "b", "--format", "raw"], ["a", "b", "--from", "7"], ["a", "-f", "--no-follow"], ["a", "-x"], ["a", "-l"],
    ] {
      #expect(throws: Stop.self, "\(words)") { try Arguments(["sub"] + words, environment: [:]) }
    }
    for words in [["--last", "0"], ["--last", "-1"], ["--last", "x"], ["--last", "1", "--from", "new"]] {
      #expect(throws: Stop.self) { try Arguments(["sub", "a"] + words, environment: [:]) }
    }
  }

  @Test func namesWithALeadingDashFollowADoubleDash() throws {
    #expect(
      try Arguments(["get", "--", "-x"], environment: [:]).command == .get(name: "-x", key: nil, .data, timeout: nil))
  }
}
