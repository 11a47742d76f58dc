import Reactive
import Testing

/// Encodes and decodes plain numbers.
struct NumberCoder: TopLevelEncoder, TopLevelDecoder {
  func encode<T: Encodable>(_ value: T) throws -> String {
    guard let value = value as? Int, value >= 0 else { throw TestError() }
    return "\(value)"
  }

  func decode<T: Decodable>(_ type: T.Type, from input: String) throws -> T {
    guard let value = Int(input) as? T else { throw TestError() }
    return value
  }
}

@Suite struct CodingTests {
  @Test func encodeDeliversEachEncodedValueUntilTheEncoderThrows() {
    let recorder = Recorder<String, any Error>()
    [1, 2, -3, 4].publisher.encode(encoder: NumberCoder()).subscribe(recorder)
    #expect(recorder.signals == [.subscribed, .value("1"), .value("2"), .failed])
  }

  @Test func decodeDeliversValuesUntilTheDecoderThrows() {
    let recorder = Recorder<Int, any Error>()
    ["1", "2", "x", "4"].publisher.decode(type: Int.self, decoder: NumberCoder()).subscribe(recorder)
    #expect(recorder.signals == [.subscribed, .value(1), .value(2), .failed])
  }
}
