import Reactive
import Testing

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
