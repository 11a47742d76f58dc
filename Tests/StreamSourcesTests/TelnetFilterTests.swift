import Testing

@testable import StreamSources

@Suite struct TelnetFilterTests {
  private func filtered(_ bytes: [UInt8], by size: Int) throws -> (text: [UInt8], answers: [UInt8]) {
    var (filter, text) = (TelnetFilter(), [UInt8]())
    for start in stride(from: 0, to: bytes.count, by: size) {
      try bytes[start..<min(bytes.count, start + size)].withUnsafeBytes { try filter.filter($0, into: &text) }
    }
    return (text, filter.takeAnswers())
  }

  @Test(
    arguments: [
      ([255, 253, 1, 65, 10], [65, 10], [255, 252, 1]), ([65, 255, 251, 3, 66], [65, 66], [255, 254, 3]),
      ([255, 252, 1, 255, 254, 2, 65], [65], []), ([65, 255, 255, 66], [65, 255, 66], []),
      ([255, 250, 24, 1, 255, 255, 9, 255, 240, 65], [65], []), ([255, 241, 65, 255, 249], [65], []),
      ([65, 13, 0, 66, 13, 10, 0], [65, 13, 66, 13, 10, 0], []),
      ([255, 253, 1, 255, 253, 1, 255, 251, 1, 255, 253, 255], [], [255, 252, 1, 255, 254, 1, 255, 252, 255]),
    ] as [([UInt8], [UInt8], [UInt8])])
  func commandsAreNoDataAndOptionsAreRefusedOnce(bytes: [UInt8], text: [UInt8], answers: [UInt8]) throws {
    for size in 1...bytes.count {
      let found = try filtered(bytes, by: size)
      #expect(found.text == text && found.answers == answers)
    }
  }

  @Test func theAnswersToAPeerThatRepeatsItselfAreBounded() throws {
    let options = (0...255).flatMap { option -> [UInt8] in [255, 253, UInt8(option), 255, 251, UInt8(option)] }
    #expect(try filtered(Array(repeating: options, count: 20).flatMap(\.self), by: 1000).answers.count == 2 * 3 * 256)
  }

  @Test func parametersWithoutAnEndAreAFailure() throws {
    let parameters = [UInt8](repeating: 1, count: TelnetFilter.mostParameterBytes)
    #expect(try filtered([255, 250, 1] + parameters.dropLast(3) + [255, 240, 65], by: 999).text == [65])
    #expect(throws: ContentFault.self) { try filtered([255, 250, 1] + parameters + [2], by: 999) }
  }
}
