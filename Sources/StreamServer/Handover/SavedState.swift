import CChecksum

/// The reason why saved state cannot be restored.
public struct InvalidSavedState: Error, Equatable {
  /// The end of a sentence whose subject is the state.
  public let reason: String

  package init(reason: String) { self.reason = reason }
}

/// The envelope of state that one process saves for the next (numbers big endian):
///
///     0   u32 magic: the kind of content
///     4   u32 version of the content's format
///     8   u8 number of processes that have begun to restore it: counted in place, outside of the checksum
///     9   3 bytes, 0
///     12  u32 CRC-32C of the content
///     16  content
package enum SavedState {
  /// The kinds of content.
  package enum Kind: UInt32 {
    /// `SavedConnections`. Versions below 4 had no checksum, and no fields that could be skipped.
    case connections = 0x5354_524D  // "STRM"
    /// The text of a configuration.
    case configuration = 0x5354_5243  // "STRC"

    /// The version of the content's format.
    var version: UInt32 {
      switch self {
      case .connections: 4
      case .configuration: 1
      }
    }
  }

  /// Bytes before the content.
  package static let headerBytes = 16
  /// The offset of the number of processes that have begun to restore it.
  package static let attemptsOffset = 8

  /// The number of processes that have begun to restore it.
  package static func attempts(in bytes: [UInt8]) -> UInt8 { bytes.count > attemptsOffset ? bytes[attemptsOffset] : 0 }

  /// Adds the envelope to content.
  package static func seal(_ content: [UInt8], as kind: Kind) -> [UInt8] {
    let numbers = unsafe [kind.rawValue, kind.version, 0, crc32c(content, content.count)]
    return numbers.flatMap { number in (0..<4).map { UInt8(truncatingIfNeeded: number >> (24 - 8 * $0)) } } + content
  }

  /// - Returns: the content.
  /// - Throws: for any bytes except a result of `seal` for this kind.
  package static func open(_ bytes: [UInt8], as kind: Kind) throws(InvalidSavedState) -> ArraySlice<UInt8> {
    guard bytes.count >= headerBytes else { throw InvalidSavedState(reason: "it has \(bytes.count) bytes") }
    func number(at offset: Int) -> UInt32 { bytes[offset..<offset + 4].reduce(0) { $0 << 8 | UInt32($1) } }
    guard number(at: 0) == kind.rawValue else { throw InvalidSavedState(reason: "it is no saved state of streamd") }
    guard number(at: 4) == kind.version else {
      throw InvalidSavedState(
        reason: "its format is version \(number(at: 4)), and this is written for version \(kind.version)")
    }
    let content = bytes[headerBytes...]
    guard unsafe content.withUnsafeBytes({ unsafe crc32c($0.baseAddress, $0.count) }) == number(at: 12) else {
      throw InvalidSavedState(reason: "it is damaged: its checksum does not match")
    }
    return content
  }
}
