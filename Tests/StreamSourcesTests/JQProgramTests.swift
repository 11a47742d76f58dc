import Testing

@testable import StreamSources

struct JQProgramTests {
  private func outputs(_ program: String, _ event: String = "null") throws -> [String] {
    try JQProgram(program).outputs(for: Array(event.utf8)).map { String(decoding: $0, as: UTF8.self) }
  }

  private func failure(_ program: String, _ event: String = "null") -> String? {
    do {
      _ = try outputs(program, event)
      return nil
    } catch {
      return (error as? JQProgram.ValueError)?.sentence ?? "\(error)"
    }
  }

  @Test(arguments: [
    (".[]", "[]", []), (".[]", "[1,\"a\",null]", ["1", "\"a\"", "null"]), ("empty", "1", []),
    (".", #" { "b" : 1 , "a" : [ 2.50 ] } "#, [#"{"b":1,"a":[2.50]}"#]),
    (". | .", #" { "b" : 1 , "a" : [ 2.50 ] } "#, [#" { "b" : 1 , "a" : [ 2.50 ] } "#]),
    (".a, .b", #"{"b":"ü\u0000\ud83d\ude00"}"#, ["null", #""ü\u0000😀""#]),
    ("def f: . + 1; f", "1", ["2"]), ("# a comment\n.", "1", ["1"]), (".", "\u{feff}1", ["1"]),
  ])
  func anEventHasNoneOneOrManyResults(program: String, event: String, expected: [String]) throws {
    #expect(try outputs(program, event) == expected)
  }

  @Test func variablesHaveTheirValuesForEachEvent() throws {
    let program = try JQProgram(".[] | select(.city == $city) + {day: $day}", variables: ["city", "day"])
    program.setVariables(["city": "oslo", "day": "7"])
    for _ in 0..<3 {
      let events = try program.outputs(for: Array(#"[{"city":"oslo"},{"city":"rome"}]"#.utf8))
      #expect(events.map { String(decoding: $0, as: UTF8.self) } == [#"{"city":"oslo","day":"7"}"#])
    }
    // Nothing else of a program differs: an event is passed on unchanged, and there is no further input.
    let other = try JQProgram("select($city == \"oslo\"), (try input catch .)", variables: ["city"])
    other.setVariables(["city": "oslo", "more": ""])
    let events = try other.outputs(for: Array("{ \"b\" : 1 }".utf8))
    #expect(events.map { String(decoding: $0, as: UTF8.self) } == ["{ \"b\" : 1 }", "\"no more inputs\""])
    #expect(JQTransform.compileError(in: "$city", variables: ["city"]) == nil)
    #expect(JQTransform.compileError(in: "$city", variables: ["town"])?.contains("$city is not defined") == true)
    #expect(JQTransform.compileError(in: "$city") != nil)
  }

  @Test func aProgramHasTheVariablesThatItNames() {
    func variables(_ text: String) -> [String] { JQTransform.variables(in: text, among: ["a", "ab", "c_1"]) }
    #expect(variables("$a") == ["a"] && variables("$ab.x + $c_1") == ["ab", "c_1"])
    #expect(variables("[$a,$ab]") == ["a", "ab"])
    #expect(variables("a, .ab, {c_1}, $abc, $ a") == [] && variables("") == [])
  }

  @Test func aProgramIsCompiledOnceAndHasNoState() throws {
    let program = try JQProgram(".[] | if . > 2 then error(\"big\") else . end")
    for _ in 0..<3 {
      #expect(try program.outputs(for: Array("[1,2]".utf8)).count == 2)
      #expect(throws: JQProgram.ValueError("big")) { try program.outputs(for: Array("[1,2,3]".utf8)) }
      #expect(throws: JQProgram.ValueError.self) { try program.outputs(for: Array("[".utf8)) }
    }
  }

  /// libjq reads up to a NUL, ends a text at U+001E, and takes numbers that are none. Each such event would have a wrong
  /// result, or lose what follows, without an error.
  @Test(arguments: [".", ". | .", "length?", ".t", "[.]", "not"])
  func onlyOneJSONTextIsAnEvent(program: String) throws {
    let program = try JQProgram(program)
    let texts = [
      "", " \n", "1 2", "{}[]", "{", "[1,]", "{a:1}", "x", "1 }", "\"a", "{\"t\":12\0}", "{\"t\":12\u{0}34}",
      "12\u{0}34", "\u{0}",
      "\u{0}\u{0}\u{0}", "{\"t\":1}\u{1e}", "{\"t\":1}\u{1e}{\"t\":2}\u{1e}", "\u{1e}{\"t\":1}", "-Infinity",
      "Infinity", "nan", "NaN",
      "007", "+1", "-", ".5", "1.", "0x10", "{\"t\":007}", "{\"t\":nan}", "{\"t\":-Infinity}", "{\"t\":+1}", "{'t':1}",
      "[1]\u{feff}",
      String(repeating: "[", count: 20000),
    ].map { Array($0.utf8) }
    let bytes: [[UInt8]] = [
      [0x22, 0xFF, 0x22], [0x22, 0x6D, 0xFC, 0x22], Array("{\"t\":\"".utf8) + [0xE4] + Array("\"}".utf8),
      [0x22, 0xE2, 0x82, 0x22], [0x22, 0xC3, 0x22], [0x22, 0xC0, 0x80, 0x22], [0x22, 0xED, 0xA0, 0x80, 0x22],
      [0x31, 0xFF],
    ]
    for event in texts + bytes {
      #expect(throws: JQProgram.ValueError.self, "\(event)") { try program.outputs(for: event) }
    }
  }

  @Test func anErrorDropsEarlierOutputs() {
    #expect(failure("1, 2, error(\"late\")") == "late")
  }

  @Test func errorsHaveJQsMessageAndLittleOfTheEvent() throws {
    #expect(failure("error({a: 1})") == #"{"a":1} (not a string)"#)
    #expect(failure(".a", "[1]")?.hasPrefix("Cannot index array with") == true)
    let long = try #require(failure("error", "\"" + String(repeating: "é", count: 1000) + "\""))
    #expect(long == String(repeating: "é", count: 100) + "…")
  }

  @Test func endlessOutputIsStopped() {
    #expect(failure("range(1e12)") == "more than 65536 outputs")
    #expect(failure(#""x" * 1048576 | range(70) as $n | ."#) == "more than 64 MiB of outputs")
  }

  @Test(arguments: [
    ("1, halt, 2", ["1"]), ("input_filename", ["null"]), ("input_line_number", ["0"]), ("[inputs]", ["[]"]),
    ("debug, stderr", ["null", "null"]), ("env, $ENV, env.PATH, $ENV.HOME", ["{}", "{}", "null", "null"]),
    ("[splits(\"a\"; null)?]", ["[]"]),
  ])
  func builtinsWithoutAccessHaveDefinedResults(program: String, expected: [String]) throws {
    #expect(try outputs(program) == expected)
  }

  @Test func inputAndHaltErrorAreErrors() {
    #expect(failure("\"why\" | halt_error") == "why")
    #expect(failure("{} | halt_error(3)") == "{} (not a string)")
    #expect(failure("input") == "no more inputs")
  }

  @Test func integersAbove2To53AreRoundedInNewValues() throws {
    // jq 1.7 preserves numbers that it does not compute with.
    #expect(try outputs("[. + 0]", "9007199254740993") == ["[9007199254740992]"])
    #expect(JQTransform.roundsNumbers(".[]") == (try outputs("[.]", "9007199254740993") == ["[9007199254740992]"]))
    #expect(!JQTransform.roundsNumbers(".a[0].b"))
  }

  @Test(arguments: [
    (".id", #"{"id": 50000000014435121}"#, "50000000014435121"),
    (".a[1]", #"{"a": [0, { "b" : [1e400, "\u0041 \"{ ", -0.0] } ], "c": 1}"#, #"{"b":[1e400,"\u0041 \"{ ",-0.0]}"#),
    (#"."a b""#, #"{"a b":"x\\"}"#, #""x\\""#), (".", " 1.000 ", "1.000"), (".a", #"{"a":1,"a":[ ]}"#, "[]"),
    (".a.b", #"{"a":null}"#, "null"), (".[0]", "null", "null"), (".a", #"{"a":"\ud83d\ude00"}"#, #""\ud83d\ude00""#),
  ])
  func theValueAtAPathIsAsWritten(program: String, event: String, expected: String) throws {
    #expect(try outputs(program, event) == [expected])
  }

  @Test(arguments: [
    "select(.id > 5)", "if .id then . else empty end", ". as $e | select($e.id != null) | $e", "select(.n | not)",
    "first(., .)",
    "try error(.) catch .",
  ])
  func anEventThatAProgramPassesOnIsAsWritten(program: String) throws {
    let event = #"{ "id": 50000000014435121 , "a":[1.0,"\u0041"]}"#
    #expect(try outputs(program, event) == [event])
  }

  @Test(arguments: [
    (".id += 0", #"{"id":1.0}"#, #"{"id":1}"#), (".a[0] = 2", #"{"a":[ 1 ]}"#, #"{"a":[2]}"#),
    ("del(.b)", #"{"a":1, "b":2}"#, #"{"a":1}"#), (".[1:]", "[1, 2, 3]", "[2,3]"), (". + [2]", "[1 ]", "[1,2]"),
    (". + \"b\"", "\"a\" ", "\"ab\""), ("sort", "[2, 1]", "[1,2]"),
  ])
  func aChangedEventIsNeverTheEventAsWritten(program: String, event: String, expected: String) throws {
    #expect(try outputs(program, event).map { $0.replacing("1.0", with: "1") } == [expected])
  }

  @Test(arguments: [
    ("foo", "foo/0 is not defined"), ("foo | bar(1)", "foo/0 is not defined; bar/1 is not defined"),
    (".a |\n $q", "$q is not defined in line 2"),
  ])
  func aCompileErrorIsOneSentence(program: String, sentence: String) {
    #expect(throws: JQProgram.CompileError(sentence: sentence)) { try JQProgram(program) }
  }

  @Test(arguments: [".a[", "import \"a\" as a; a::b", "include \"a\"; .", "\"", ".a)", "", "{\n a: }", "1 as $x"])
  func aSyntaxErrorIsACompileError(program: String) {
    do {
      _ = try JQProgram(program)
      Issue.record("\(program) was taken")
    } catch {
      #expect(error.sentence.hasPrefix("syntax error"))
      #expect(!error.sentence.contains { $0.isNewline } && !error.sentence.contains("ENV"))
      #expect(!error.sentence.contains("quoting") && !error.sentence.contains("top-level"))
      #expect(error.sentence.contains(" in line ") == program.contains("\n"))
    }
  }

  @Test func aNULIsACompileError() {
    #expect(throws: JQProgram.CompileError(sentence: "a NUL character")) { try JQProgram(".\0a") }
    #expect(JQTransform.compileError(in: ".a[] | {b}") == nil)
    #expect(JQTransform.compileError(in: "nope") == "nope/0 is not defined")
  }
}
