import Testing

@testable import StreamSources

struct JQAnswerTests {
  private let answers = [
    JQAnswer(),
    JQAnswer(failure: "é"),
    JQAnswer(outputs: [.init(), .init(event: []), .init(event: [1, 2]), .init(event: nil, key: [])]),
    JQAnswer(outputs: [.init(event: Array(repeating: 7, count: 300), key: [3])], failure: "distinct: x"),
  ]

  @Test(arguments: [1, 2, 3, 7, 1000]) func answersSurviveAnySplit(size: Int) throws {
    var bytes: [UInt8] = []
    for answer in answers { bytes.appendMessage(answer.encoded) }
    var reader = JQMessageReader()
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
  }

  @Test func keysAreTheResultsOfTheSecondProgram() throws {
    let key = try JQProgram(".id // error(\"no id\")")
    let split = try JQProgram(".[]")
    let event = Array(#"[{"id":1,"x":2},{"x":3}]"#.utf8)
    let answer = JQWorker.answer(event, split, key)
    #expect(answer.outputs.map(\.key) == [Array("1".utf8), nil])
    #expect(answer.failure == "distinct: no id")
    // Without a first program the event is unchanged.
    #expect(JQWorker.answer(Array(#"{ "id": 5 }"#.utf8), nil, key).outputs == [.init(event: nil, key: [0x35])])
    #expect(JQWorker.answer(Array("x".utf8), nil, key).outputs == [.init()])
    #expect(JQWorker.answer(Array("x".utf8), split, key).outputs.isEmpty)
    #expect(JQWorker.answer(Array("1".utf8), nil, try JQProgram("., 2")).outputs.map(\.key) == [Array("1\n2".utf8)])
  }
}
