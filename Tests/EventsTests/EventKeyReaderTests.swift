import Events
import Testing

@Suite struct EventKeyReaderTests {
  private static func key(_ text: String, by path: String = ".k", tombstone: String? = nil) throws -> EventKey? {
    var reader = try #require(EventKeyReader(KeyDefinition(key: path, tombstone: tombstone)))
    _ = reader.key(of: Array(#"{"k":"former","d":true}"#.utf8).span)
    return reader.key(of: Array(text.utf8).span)
  }

  @Test(arguments: [
    [#"{"k":1}"#, #"{"k":1.0}"#, #"{"k":10e-1,"x":2}"#], [#"{"k":"1"}"#, #"{"k":"\u0031"}"#], [#"{"k":true}"#],
    [#"{"k":false}"#], [#"{"k":"true"}"#], [#"{"k":""}"#], [#"{"k":0}"#, #"{"k":-0}"#],
    [#"{"k":"é"}"#, #"{"k":"\u00e9"}"#],
    [#"{"k":"e\u0301"}"#],
  ]) func keysAreComparedByTypeAndValue(texts: [String]) throws {
    let keys = try texts.map { try Self.key($0) }
    #expect(!keys.contains(nil) && Set(keys).count == 1)
    for other in [#"{"k":2}"#, #"{"k":"x"}"#] { #expect(try !keys.contains(Self.key(other))) }
  }

  @Test func keysOfOtherTypesOrCodePointsDiffer() throws {
    let texts = [
      #"{"k":1}"#, #"{"k":"1"}"#, #"{"k":true}"#, #"{"k":false}"#, #"{"k":"true"}"#, #"{"k":"t"}"#, #"{"k":""}"#,
      #"{"k":"é"}"#, #"{"k":"e\u0301"}"#, #"{"k":"n1e1"}"#,
    ]
    #expect(try Set(texts.map { try Self.key($0) }).count == texts.count)
  }

  @Test(arguments: [
    #"{"k":null}"#, #"{"k":[]}"#, #"{"k":{"k":1}}"#, #"{"x":1}"#, "[1]", "7", "", #"{"k":1"#, "\u{1}",
    #"{"k":""# + String(repeating: "x", count: 1025) + #""}"#,
  ]) func eventWithoutAKeyHasNone(text: String) throws {
    #expect(try Self.key(text) == nil)
  }

  @Test func aStringOf1024BytesIsAKey() throws {
    for letter in ["x", "é"] {
      let text = String(repeating: letter, count: 1024 / letter.utf8.count)
      #expect(try Self.key("{\"k\":\"\(text)\"}")?.bytes.count == 1025)
      #expect(EventKeyReader.keys(namedBy: text).first?.count == 1025)
      #expect(try Self.key("{\"k\":\"\(text)x\"}") == nil)
    }
  }

  @Test func aKeyHasAtMost6146BytesAsWritten() throws {
    let escaped = String(repeating: "\\u0061", count: 1024)
    #expect(try Self.key("{\"k\":\"\(escaped)\"}") == Self.key("{\"k\":\"\(String(repeating: "a", count: 1024))\"}"))
    #expect(try Self.key("{\"k\":\"\(escaped)a\"}") == nil)
    #expect(try Self.key("{\"k\":1\(String(repeating: "0", count: 6145))}") == Self.key("{\"k\":1e6145}"))
    #expect(try Self.key("{\"k\":1\(String(repeating: "0", count: 6146))}") == nil)
  }

  @Test(arguments: [
    #"{"a":[[],{}],"k":"x\u0031é","d":true}"#, #"{"k":12.5e3,"d":false}"#, #"{"k":true}"#, "7", "[1]", #"{"k":1"#,
    #"{"k":1}}"#,
    #"{"k":tru,"k":1}"#, "", #"{"k":"former","k":"last"}"#,
  ]) func anEventThatArrivesInPartsHasTheSameKey(text: String) throws {
    for path in [".k", "."] {
      var reader = try #require(EventKeyReader(KeyDefinition(key: path, tombstone: ".d")))
      let event = Array(text.utf8)
      var whole = EventKeys()
      reader.append(keyOf: event.span, to: &whole)
      let malformed = reader.malformedCount
      for cut in 0...event.count {
        for step in [1, 3, 100] {
          var parts = EventKeys()
          var isText = true
          let ends = Array(stride(from: cut, to: event.count, by: step)) + [event.count]
          reader.begin()
          for end in ends where isText { isText = reader.continues(in: event.span.extracting(0..<end)) }
          let before = reader.malformedCount
          reader.finish(event.span, isText: isText, to: &parts)
          #expect(parts == whole && reader.malformedCount - before == malformed, "\(cut), \(step)")
        }
      }
    }
  }

  @Test func textNamesTheKeysThatItCanMean() throws {
    func strings(_ text: String) -> [String] {
      EventKeyReader.keys(namedBy: text).map { String(decoding: $0, as: UTF8.self) }
    }
    for text in ["a", "", "new york", "null", "[1]", "1 ", " 1", "\"a", "1\n", "tru", "0x1", "é"] {
      #expect(strings(text) == ["s" + text], "\(text)")
    }
    #expect(strings("\"a\"") == ["sa"] && strings("\"1\"") == ["s1"] && strings("\"\\u0061 b\"") == ["sa b"])
    for text in ["1", "1.0", "10e-1"] { #expect(strings(text) == [strings("1")[0], "s" + text]) }
    #expect(strings("true") == ["t", "strue"])
  }

  @Test func tombstoneIsTrueAndNothingElse() throws {
    for (text, isTombstone) in [
      (#"{"k":1,"d":true}"#, true), (#"{"k":1,"d":false}"#, false), (#"{"k":1,"d":"true"}"#, false),
      (#"{"k":1,"d":1}"#, false), (#"{"k":1}"#, false), (#"{"d":true,"k":1}"#, true),
    ] {
      #expect(try Self.key(text, tombstone: ".d")?.isTombstone == isTombstone, "\(text)")
    }
  }

  @Test(arguments: [
    (".", "7", "7"), (".a", #"{"a":7}"#, "7"), (".a.b", #"{"a":{"b":7}}"#, "7"), (#".["a b"]"#, #"{"a b":7}"#, "7"),
    (#"."a b".c"#, #"{"a b":{"c":7}}"#, "7"), (".[1]", "[1,7]", "7"), (".a[0].b", #"{"a":[{"b":7}]}"#, "7"),
    (#".a["b"]"#, #"{"a":{"b":7}}"#, "7"), (" .a ", #"{"a":7}"#, "7"), (#".["\u0061"]"#, #"{"a":7}"#, "7"),
    (".a.[0]", #"{"a":[7]}"#, "7"), ("._1", #"{"_1":7}"#, "7"),
  ]) func pathLeadsToTheKey(path: String, text: String, value: String) throws {
    #expect(try Self.key(text, by: path) == Self.key(#"{"k":7}"#))
  }

  @Test(arguments: [
    "", "a", ".a+.b", ".a|.b", ".a[]", "..", ".a.", ".[-1]", ".[", #".["a]"#, #".["\(1)"]"#, ".1", "[.a]", ".a?",
    ".a,.b",
    ".a[1", ".é",
  ]) func otherProgramIsNoPath(program: String) {
    #expect(EventKeyReader(KeyDefinition(key: program)) == nil)
    #expect(EventKeyReader(KeyDefinition(key: ".a", tombstone: program)) == nil)
  }

  @Test(arguments: [
    (".", ""), (".a", "/a"), (".a.b[0]", "/a/b/0"), (#".["a/b~c"]."d""#, "/a~1b~0c/d"), (#".[""]"#, "/"),
    (".a|.b", nil),
  ]) func pathIsAPointer(program: String, pointer: String?) {
    #expect(JSONPaths.pointer(ofProgram: program) == pointer)
  }

  @Test func pathDeeperThanAnyTextIsNone() {
    let limit = JSONSyntax.depthLimit
    #expect(JSONPaths.steps(ofProgram: "." + String(repeating: "[0]", count: limit))?.count == limit)
    #expect(JSONPaths.steps(ofProgram: "." + String(repeating: "[0]", count: limit + 1)) == nil)
    #expect(EventKeyReader(KeyDefinition(key: ".k", tombstone: "." + String(repeating: "[0]", count: 100_000))) == nil)
  }
}
