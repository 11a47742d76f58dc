import Testing

@testable import StreamServer

/// What a socket has not taken.
@Suite struct UnsentBytesTests {
  private func read(_ unsent: UnsentBytes) -> [UInt8] { unsent.withUnsafeBytes { Array($0) } }

  @Test func bytesAreWrittenInOrderInPiecesOfAnySize() {
    for size in 1...7 {
      var (unsent, written, next) = (UnsentBytes(), [UInt8](), UInt8(0))
      while written.count < 200 {
        for _ in 0..<3 {
          unsent.append([next, next + 1])
          next = next &+ 2
        }
        let count = min(size, unsent.count)
        written += read(unsent).prefix(count)
        unsent.removeFirst(count)
        #expect(unsent.array == read(unsent) && unsent.count == unsent.array.count)
        if written.count + unsent.count > 240 { break }
      }
      written += unsent.array
      #expect(written == (0..<written.count).map { UInt8($0) })
    }
  }

  /// A client that never reads everything costs what it has not read.
  @Test func writtenBytesAreReleased() {
    var unsent = UnsentBytes([1, 2, 3])
    unsent.removeFirst(1)
    #expect(unsent.count == 2 && unsent.heldByteCount == 3 && unsent.array == [2, 3])
    unsent.append([4])
    #expect(unsent.count == 3 && unsent.heldByteCount == 3 && read(unsent) == [2, 3, 4])
    unsent.removeFirst(3)
    #expect(unsent.isEmpty && unsent.heldByteCount == 0 && unsent.array.isEmpty && read(unsent).isEmpty)
    unsent.removeFirst(0)
    unsent.append([])
    #expect(unsent.isEmpty)
  }

  @Test func unsentBytesAreReplaced() {
    var unsent = UnsentBytes([1, 2, 3, 4, 5])
    unsent.removeFirst(1)
    unsent.replace(2, at: 1, by: [9, 9, 9])
    #expect(unsent.array == [2, 9, 9, 9, 5])
    unsent.replace(1, at: 0, by: [])
    #expect(unsent.array == [9, 9, 9, 5])
  }
}
