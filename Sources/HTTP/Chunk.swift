/// The bytes around a part of a response's body in the chunked coding. Source: RFC 9112, section 7.1.
public enum Chunk {
  /// The most bytes that a chunk adds to its data.
  public static let maximumOverheadByteCount = 16 + 2 + 2
  /// The end of a body without trailers.
  public static let last = "0\r\n\r\n"

  /// Returns the size of a chunk.
  /// - Parameter byteCount: the size of its data, at least 1: a chunk without data ends the body.
  public static func byteCount(dataByteCount byteCount: Int) -> Int {
    ByteWriter.hexadecimalDigitCount(UInt64(byteCount)) + 2 + byteCount + 2
  }

  /// Writes the bytes before the data: its size in as few digits as possible.
  /// - Parameter byteCount: at least 1.
  public static func writeHeader(byteCount: Int, to writer: inout ByteWriter) {
    precondition(byteCount > 0, "a chunk without data would end the body")
    writer.append(hexadecimal: UInt64(byteCount))
    writer.append("\r\n")
  }

  /// Writes the bytes after the data.
  public static func writeEnd(to writer: inout ByteWriter) { writer.append("\r\n") }
}
