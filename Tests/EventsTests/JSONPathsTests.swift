import Events
import Testing

@Suite struct JSONPathsTests {
  private static func found(_ pointers: [String], in text: String) -> [String?]? {
    var finder = JSONFinder(JSONPaths(pointers.map { JSONPaths.steps(ofPointer: $0) ?? [] }))
    let bytes = Array(text.utf8)
    _ = finder.find(in: Array("[{\"a\":7}]".utf8).span)  // what an earlier text had is forgotten
    guard finder.find(in: bytes.span) else { return nil }
    return pointers.indices.map { path in finder[path].map { String(decoding: bytes[$0], as: UTF8.self) } }
  }

  @Test(arguments: [
    ("/a", #"{"a":1}"#, "1"), ("/a", #"{"b":{"a":2},"a":1,"c":[{"a":3}]}"#, "1"), ("/a", #" { "a" : "x" } "#, #""x""#),
    ("/a", #"{"a":1,"a":2}"#, "2"), ("/a/b", #"{"a":{"b":true}}"#, "true"), ("/a/1", #"{"a":[7,8,9]}"#, "8"),
    ("/a/1", #"{"a":{"1":5}}"#, "5"), ("/a/1/0", #"{"a":[[],[6]]}"#, "6"), ("", "12", "12"), ("", " null ", "null"),
    ("/a~1b~0c", #"{"a/b~c":3}"#, "3"), ("/é", #"{"\u00e9":4}"#, "4"), ("/a\"b", #"{"a\"b":4}"#, "4"),
    ("/", #"{"":5}"#, "5"),
    ("/a", #"{"a":[1,2]}"#, "["), ("/a", #"{"a":{"b":1}}"#, "{"), ("/a", #"{"a":-1.5e3}"#, "-1.5e3"),
    ("/1", "[4,5.5]", "5.5"), ("/a/b", #"{"a":[{"b":1}],"a":{"b":2}}"#, "2"), ("/0/0/0", "[[[9]]]", "9"),
  ])
  func valueAtAPointerIsFound(pointer: String, text: String, value: String) {
    #expect(Self.found([pointer], in: text) == [value])
  }

  @Test func pathDeeperThanAnyTextLeadsToNothing() {
    let limit = JSONSyntax.depthLimit
    let pointers = [limit, limit + 1, 100_000].map { String(repeating: "/0", count: $0) }
    let text = String(repeating: "[", count: limit) + "7" + String(repeating: "]", count: limit)
    #expect(Self.found(pointers, in: text) == ["7", nil, nil])
  }

  @Test(arguments: [
    ("/a", #"{"b":1}"#), ("/a", "[1]"), ("/a", "7"), ("/a/b", #"{"a":1}"#), ("/a/b", #"{"a":{"b":1},"a":2}"#),
    ("/0", "[]"), ("/01", "[1,2]"), ("/-1", "[1]"), ("/2", "[1,2]"), ("/a", #"{"A":1}"#), ("/a", #"{"x":{"a":1}}"#),
    ("/a", #"[{"a":1}]"#), ("/99999999999999999999", "[1]"),
  ])
  func pointerToNothingFindsNothing(pointer: String, text: String) {
    #expect(Self.found([pointer], in: text) == [nil])
  }

  @Test func allPathsAreFoundInOnePass() {
    let text = #"{"a":{"b":[1,{"c":"x"}],"d":null},"e":false,"a2":0}"#
    #expect(
      Self.found(["/e", "/a/b/1/c", "/a/d", "/a", "/a/b/0", "/nope", "/a/b/1/c", ""], in: text)
        == ["false", #""x""#, "null", "{", "1", nil, #""x""#, "{"])
  }

  /// A client's filter may have many pointers of many steps in common.
  @Test func pathsThatShareStepsAreFound() {
    let (depth, count) = (100, 16)
    let shared = String(repeating: "/a", count: depth)
    let pointers = (0..<count).map { "\(shared)/\($0)" } + [shared, "/a/b", shared + "/7"]
    let inner = (0..<count).map { "\"\($0)\":\(100 + $0)" }.joined(separator: ",")
    let text =
      String(repeating: #"{"a":"#, count: depth) + "{\(inner)}" + String(repeating: "}", count: depth - 1) + #","b":1}"#
    #expect(
      Self.found(pointers, in: text) == (0..<count).map { "\(100 + $0)" } + ["{", nil, "107"])
  }

  @Test(arguments: ["", "{", #"{"a":1"#, #"{"a":1}x"#, #"{"a":}"#, "{a:1}", "\u{1}", #"{"a":1,}"#])
  func textThatIsNoJSONHasNoValues(text: String) {
    #expect(Self.found(["/a"], in: text) == nil)
  }

  @Test(arguments: ["a", "a/b", "/~", "/~2", "/a~"]) func textThatIsNoPointerIsRefused(text: String) {
    #expect(JSONPaths.steps(ofPointer: text) == nil)
  }

  @Test func slicesFindTheSameAsOnePass() {
    let text = Array(
      #"{"x":"\ud83d\ude00é","a":{"b":[10,-2.5e-3,"long string with \"quotes\" in it"]},"a2":[true]}"#.utf8)
    let paths = JSONPaths(["/a/b/0", "/a/b/1", "/a/b/2", "/a2/0", "/x"].map { JSONPaths.steps(ofPointer: $0) ?? [] })
    var whole = JSONFinder(paths)
    let isFound = whole.find(in: text.span)
    #expect(isFound)
    for count in 1...9 {
      var finder = JSONFinder(paths)
      var isJSON = finder.advance(in: text.span, by: count)
      while isJSON == nil { isJSON = finder.advance(in: text.span, by: count) }
      #expect(isJSON == true)
      for path in 0..<5 { #expect(finder[path] == whole[path]) }
    }
  }

  @Test func largestDepthIsFollowed() {
    let depth = JSONSyntax.depthLimit
    let text = String(repeating: "[", count: depth) + String(repeating: "]", count: depth)
    #expect(Self.found([String(repeating: "/0", count: depth - 1)], in: text) == ["["])
  }
}

@Suite struct JSONScalarTests {
  @Test(arguments: [
    ("plain", "plain"), (#"\"\\\/\b\f\n\r\t"#, "\"\\/\u{8}\u{C}\n\r\t"), (#"\u0041\u00e9"#, "Aé"),
    (#"\ud83d\ude00"#, "😀"),
    (#"\uD83D\uDE00x"#, "😀x"), ("", ""),
  ])
  func stringHasItsCharacters(written: String, characters: String) {
    var bytes: [UInt8] = []
    JSONScalar.appendUnescaped(Array(written.utf8).span, to: &bytes)
    #expect(String(decoding: bytes, as: UTF8.self) == characters)
  }

  /// They are no characters; U+FFFD is one, and they differ from each other.
  @Test(
    arguments: [
      (#"\ud83d"#, [0xED, 0xA0, 0xBD]), (#"\ud83dx"#, [0xED, 0xA0, 0xBD, 0x78]), (#"\uDE00"#, [0xED, 0xB8, 0x80]),
      (#"\ude00\ud83d"#, [0xED, 0xB8, 0x80, 0xED, 0xA0, 0xBD]), (#"\ud83d\u0041"#, [0xED, 0xA0, 0xBD, 0x41]),
    ] as [(String, [UInt8])])
  func halfOfASurrogatePairIsWrittenAsItsOwnBytes(written: String, bytes: [UInt8]) {
    var characters: [UInt8] = []
    JSONScalar.appendUnescaped(Array(written.utf8).span, to: &characters)
    #expect(characters == bytes)
    #expect(String(validating: characters, as: UTF8.self) == nil)
  }

  private static func compared(_ one: String, _ other: String) -> Int {
    let (one, other) = (Array(one.utf8), Array(other.utf8))
    return JSONNumber(one.span).compared(in: one.span, to: JSONNumber(other.span), in: other.span)
  }

  private static func normalForm(_ text: String) -> [UInt8] {
    let text = Array(text.utf8)
    var form: [UInt8] = []
    JSONNumber(text.span).appendNormalForm(in: text.span, to: &form)
    return form
  }

  /// In ascending order; those of one row are equal.
  private static let numbers = [
    ["-1e1000000000000000000000"], ["-100", "-1e2", "-100.00"], ["-99.9"], ["-1", "-1.0", "-10e-1"], ["-0.001"],
    ["0", "-0", "0.000", "0e5", "-0.0e-7"], ["1e-1000000000000000000000"], ["0.0001", "1e-4", "0.1e-3"], ["0.00012"],
    ["0.5", "5e-1", "5E-1", "0.50"], ["1", "1.0", "10e-1", "0.01e2", "1e+0"],
    ["1.00000000000000000000000000000000000000000001"],
    ["9"], ["10", "1e1", "1.0e1"], ["10.5"], ["123456789012345678901234567890"], ["123456789012345678901234567891"],
    ["1e400"], ["1e1000000000000000000000"],
  ]

  @Test func numbersAreComparedByTheirDecimalValue() {
    for (place, row) in Self.numbers.enumerated() {
      for (otherPlace, otherRow) in Self.numbers.enumerated() {
        for one in row {
          for other in otherRow {
            let expected = place == otherPlace ? 0 : place < otherPlace ? -1 : 1
            #expect(Self.compared(one, other) == expected, "\(one) and \(other)")
          }
        }
      }
    }
  }

  @Test func equalNumbersHaveOneFormAndOthersAnother() {
    let forms = Self.numbers.map { Set($0.map(Self.normalForm)) }
    #expect(forms.allSatisfy { $0.count == 1 })
    #expect(Set(forms).count == forms.count)
  }
}
