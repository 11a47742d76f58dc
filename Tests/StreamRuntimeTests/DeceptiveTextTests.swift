import FoundationEssentials
import Testing

@testable import StreamRuntime

@Suite struct DeceptiveTextTests {
  @Test func whatCouldControlATerminalIsEscaped() {
    let text = "a\u{85}\u{9B}\u{7F}\n\u{202E}\u{2066}\u{200F}\u{61C}\u{2028}\u{FEFF}\u{AD}\u{E0041}é👩\u{200D}🔬"
    let common = #"a\u{0085}\u{009B}\u{7F}\n\u{202E}\u{2066}\u{200F}\u{061C}\u{2028}\u{FEFF}\u{00AD}\u{000E0041}é👩"#
    #expect(text.escapedForTerminal == common + #"\u{200D}🔬"#)
    #expect(text.escapedForReading == common + "\u{200D}🔬")
  }

  /// The library in C has a table, because it has no properties of characters.
  @Test func theLibraryInCHasTheSameSet() throws {
    let file = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "../../Sources/libstreamd/error.c")
    let source = try String(contentsOf: file, encoding: .utf8)
    let ranges = source.matches(of: /\{0x([0-9a-f]+), 0x([0-9a-f]+)\}/).compactMap { match -> ClosedRange<UInt32>? in
      guard let first = UInt32(match.1, radix: 16), let last = UInt32(match.2, radix: 16) else { return nil }
      return first...last
    }
    #expect(ranges == ranges.sorted { $0.lowerBound < $1.lowerBound })
    let theirs = Set(ranges.joined())
    let ours = Set((0...0x10FFFF as ClosedRange<UInt32>).filter { Unicode.Scalar($0)?.isDeceptive == true })
    #expect(theirs == ours, "\(theirs.symmetricDifference(ours).sorted().map { String($0, radix: 16) })")
  }
}
