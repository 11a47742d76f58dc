import Testing

@testable import Events

@Suite struct UTF8CheckTests {
  @Test func textIsCheckedWhateverTheSplits() {
    /// Whether it is valid as one piece; the same holds for pieces of one byte.
    func isText(_ bytes: [UInt8]) -> Bool {
      var (whole, pieces) = (UTF8Check(), UTF8Check())
      let isValid = whole.take(bytes.span)
      let isValidInPieces = bytes.allSatisfy { pieces.take([$0].span) }
      #expect(isValid == isValidInPieces && (!isValid || whole == pieces))
      return isValid && whole.isComplete
    }
    for text in [
      "", "plain", "12345678", "123456789é", "é12345678", "\u{7f}\u{80}\u{7ff}\u{800}\u{d7ff}\u{e000}\u{ffff}",
      "\u{10000}\u{10ffff}",
    ] {
      #expect(isText(Array(text.utf8)))
      for end in text.utf8.indices {
        let prefix = Array(text.utf8[..<end])
        #expect(isText(prefix) == (String(validating: prefix, as: UTF8.self) != nil))
      }
    }
    for bytes: [UInt8] in [
      [0x80], [0xc0, 0x80], [0xc1, 0xbf], [0xe0, 0x9f, 0xbf], [0xed, 0xa0, 0x80], [0xf0, 0x8f, 0xbf, 0xbf],
      [0xf4, 0x90, 0x80, 0x80], [0xf5], [0xff], [0x61, 0x61, 0x61, 0x61, 0x61, 0x61, 0x61, 0xff], [0xc3, 0x61],
    ] {
      #expect(!isText(bytes))
    }
  }
}
