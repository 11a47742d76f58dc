import Events
import Testing

@testable import StreamSources

struct JQAnswerTests {
  private let answers = [
    JQAnswer(outputs: [
      .init(key: EventKey([115, 1])), .init(event: [1], distinctBy: [2], key: EventKey([3], isTombstone: true)),
    ]),
    JQAnswer(),
    JQAnswer(failure: "é"),
    JQAnswer(outputs: [.init(), .init(event: []), .init(event: [1, 2]), .init(event: nil, distinctBy: [])]),
    JQAnswer(outputs: [.init(event: Array(repeating: 7, count: 300), distinctBy: [3])], failure: "distinct: x"),
  ]

  @Test(arguments: [1, 2, 3, 7, 1000]) func answersSurviveAnySplit(size: Int) throws {
    var bytes: [UInt8] = []
    for answer in answers { bytes.appendMessage(answer.encoded) }
    var reader = HelperMessageReader()
    var read: [JQAnswer] = []
    for start in stride(from: 0, to: bytes.count, by: size) {
      bytes[start..<min(bytes.count, start + size)].withUnsafeBytes { reader.append($0) }
      while let message = reader.next() { read.append(try #require(JQAnswer(message))) }
    }
    #expect(read == answers)
    #expect(!reader.isOverLimit)
  }

  @Test func malformedAnswersAreRejected() {
    for answer in answers {
      let bytes = answer.encoded
      for count in 0..<bytes.count {
        if let shorter = JQAnswer(bytes[..<count]) { #expect(shorter.outputs.count < max(1, answer.outputs.count)) }
      }
    }
    #expect(JQAnswer([0, 1, 255, 255, 255, 255, 1]) == nil)
    #expect(JQAnswer([0, 4, 0, 0, 0, 0]) == nil, "a key without bytes")
    #expect(JQAnswer([0, 4, 2, 4, 0, 0] + [UInt8](repeating: 1, count: 1026)) == nil, "a key of 1,026 bytes")
  }

  @Test func comparedAreTheResultsOfTheSecondProgram() throws {
    let distinctBy = try JQProgram(".id // error(\"no id\")")
    let split = try JQProgram(".[]")
    let event = Array(#"[{"id":1,"x":2},{"x":3}]"#.utf8)
    let answer = JQWorker.answer(event, [split, distinctBy, nil, nil])
    #expect(answer.outputs.map(\.distinctBy) == [Array("1".utf8), nil])
    #expect(answer.failure == "distinct: no id")
    // Without a first program the event is unchanged.
    func outputs(_ text: String, _ program: JQProgram?, _ distinctBy: JQProgram) -> [JQAnswer.Output] {
      JQWorker.answer(Array(text.utf8), [program, distinctBy, nil, nil]).outputs
    }
    #expect(outputs(#"{ "id": 5 }"#, nil, distinctBy) == [.init(event: nil, distinctBy: [0x35])])
    #expect(outputs("x", nil, distinctBy) == [.init()])
    #expect(outputs("x", split, distinctBy).isEmpty)
    #expect(outputs("1", nil, try JQProgram("., 2")).map(\.distinctBy) == [Array("1\n2".utf8)])
  }

  @Test func valuesAtAPathAreComparedExactly() throws {
    let id = try JQProgram(".id")
    func compared(_ text: String) -> [UInt8]? {
      JQWorker.answer(Array(text.utf8), [nil, id, nil, nil]).outputs[0].distinctBy
    }
    let texts = ["50000000014435121", "50000000014435122", "\"50000000014435121\"", "null", "[ ]", "{}", "true"]
    let all = try texts.map { try #require(compared("{\"id\":\($0)}")) }
    #expect(Set(all).count == texts.count)
    for (first, second) in [
      ("{\"id\":1}", "{\"id\": 10e-1 }"), ("{\"id\":\"A\"}", "{\"id\":\"\\u0041\"}"), ("{}", "{\"id\":null}"),
      ("{\"id\":[1, 2]}", "{\"id\":[1,2]}"),
    ] { #expect(compared(first) == compared(second)) }
  }

  @Test(
    arguments: [
      ("\"a\"", "sa", nil), ("1.50", "n15e1", nil), ("true", "t", nil), ("null", nil, nil), ("[]", nil, nil),
      ("empty", nil, nil), ("1, 2", nil, "key: 2 outputs, where one at most is expected"),
      ("error(\"no\")", nil, "key: no"),
      ("\"x\" * 1025", nil, nil),
    ] as [(String, String?, String?)])
  func keyIsTheOnlyResultIfThatIsAScalar(program: String, key: String?, failure: String?) throws {
    let answer = JQWorker.answer(Array("1".utf8), [nil, nil, try JQProgram(program), nil])
    #expect(answer.outputs.map { $0.key.map { String(decoding: $0.bytes, as: UTF8.self) } } == [key])
    #expect(answer.failure == failure)
  }

  @Test func tombstoneIsAnEventForWhichTheProgramIsTrue() throws {
    for (program, isTombstone) in [("true", true), ("1", false), ("\"true\"", false), ("empty", false)] {
      let programs = try ["\"a\"", program].map { try JQProgram($0) }
      let answer = JQWorker.answer(Array("1".utf8), [nil, nil] + programs)
      #expect(answer.outputs.map(\.key) == [EventKey(Array("sa".utf8), isTombstone: isTombstone)])
    }
  }
}
